//! The `elastico` command as a user meets it.

mod architecture;
mod artefacts;
mod bad_input;
mod doctor;
mod exec;
mod few_shot;
mod gpu_campaign;
mod next;
mod place;
mod road;
mod serve;
mod simulate;
mod stand_ins;
mod trace;

/// Runs the command in a folder at 80 columns: exit code, stdout and stderr.
fn elastico(folder: &std::path::Path, arguments: &str) -> (Option<i32>, String, String) {
    let output = assert_cmd::Command::cargo_bin("elastico")
        .expect("the binary")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("COLUMNS", "80")
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
