//! `elastico man`

use crate::failure::Ending;
use crate::output;
use anyhow::Context as _;
use clap::CommandFactory as _;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write one page per command into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let command = crate::Arguments::command();
    match &arguments.out {
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(command, folder))
                .with_context(|| format!("cannot write manual pages into `{}`", folder.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).context("cannot write the manual page")?;
            output::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(Ending::Done)
}
