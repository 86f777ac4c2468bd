//! The man page, made from the options themselves.

use std::fmt::Write;

use clap::CommandFactory;

use crate::config::Cli;

/// hippihxd(8) in roff.
pub fn page() -> String {
    let command = Cli::command();
    let mut page = String::new();
    let _ = writeln!(page, ".TH HIPPIHXD 8 \"\" \"hippihx {}\"", env!("CARGO_PKG_VERSION"));
    page.push_str(
        ".SH NAME\nhippihxd \\- the kernel daemon of one GPU\n.SH SYNOPSIS\n.B hippihxd\n[\\fIoptions\\fR]\n",
    );
    page.push_str(
        ".SH DESCRIPTION\nLoads the code object of the GPU's slot after strict checks and serves Plan, Bind and Run over gRPC on a Unix \
         socket, with tensors in shared memory. SIGTERM drains, SIGHUP reads the configuration again and reloads the code object.\n",
    );
    page.push_str(".SH OPTIONS\n");
    for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
        let name = option.get_long().unwrap_or_default();
        let value =
            option.get_value_names().and_then(|names| names.first()).filter(|_| option.get_action().takes_values());
        let value = value.map_or_else(String::new, |value| format!(" \\fI{value}\\fR"));
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(page, ".TP\n\\fB\\-\\-{}\\fR{value}\n{help}", name.replace('-', "\\-"));
    }
    page.push_str(".SH EXIT STATUS\n");
    for (code, meaning) in EXIT_CODES {
        let _ = writeln!(page, ".TP\n{code}\n{meaning}");
    }
    page.push_str(
        ".SH FILES\n.TP\n/etc/hippihx/hippihxd.toml\nThe configuration; every option is there with a comment.\n",
    );
    page.push_str(".SH SEE ALSO\nhippihxctl(1)\n");
    page
}

/// What the process ends with.
const EXIT_CODES: [(u8, &str); 11] = [
    (0, "Drained and stopped."),
    (1, "An error of the system while serving."),
    (3, "The device was lost or hung; starting again may help."),
    (64, "The configuration is wrong."),
    (65, "HSA_OVERRIDE_GFX_VERSION is set in one of its forms (ERR_FOREIGN_ISA)."),
    (66, "The device or its runtime is not there (ERR_NO_HIP)."),
    (67, "The device's architecture is no slot (ERR_UNSUPPORTED_ARCH)."),
    (68, "The code object is missing or no good (ERR_CODE_OBJECT)."),
    (69, "The code object is for another architecture (ERR_FOREIGN_ISA)."),
    (70, "Another daemon has the socket or the device."),
    (71, "The sockets cannot be made."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_option_is_on_the_page() {
        let page = page();
        for option in ["device", "kernels", "socket", "config", "check\\-config"] {
            assert!(page.contains(&format!("\\-\\-{option}")), "{option}");
        }
    }
}
