//! `elastico completions`

use crate::failure::Ending;
use crate::output;
use clap::CommandFactory as _;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "elastico", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Ending::Done)
}
