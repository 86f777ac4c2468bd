//! `hippihxctl man`: hippihxctl.1, with every command and its options on the one page.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man;
use hippihx_proto::SOCKET_VARIABLE;

use crate::cli::{Cli, EXIT_STATUS};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for hippihxctl.1
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn run(args: &Args) -> Result<u8> {
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let path = args.out.join("hippihxctl.1");
    fs::write(&path, page()?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(0)
}

fn page() -> std::io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    writeln!(page, ".SH COMMANDS")?;
    for mut sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help").cloned() {
        let usage = sub.render_usage().to_string();
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(page, ".SS {}", sub.get_name())?;
        writeln!(page, "{}.\n.PP\n{}", roff(&about), roff(usage.trim_start_matches("Usage: ")))?;
        for option in sub.get_arguments().filter(|option| !option.is_hide_set() && !option.is_global_set()) {
            let name = option.get_long().map_or_else(|| option.get_id().to_string(), |long| format!("--{long}"));
            if name == "--help" {
                continue;
            }
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(&name), roff(&help))?;
        }
    }
    writeln!(page, ".SH EXIT STATUS\n{}", roff(EXIT_STATUS))?;
    writeln!(page, ".SH ENVIRONMENT\n.TP\n{SOCKET_VARIABLE}\nThe socket, where no option names one.")?;
    writeln!(page, ".TP\nNO_COLOR\nTurns colours off.\n.SH SEE ALSO\nhippihxd(8)")?;
    Ok(page)
}

fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_and_the_exit_status_are_on_the_page() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        for sub in Cli::command().get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(page.contains(&format!(".SS {}", sub.get_name())), "{}", sub.get_name());
        }
        for word in ["64 the command line", "\\-\\-health", "HIPPIHX_SOCKET"] {
            assert!(page.contains(word), "{word}: {page}");
        }
    }
}
