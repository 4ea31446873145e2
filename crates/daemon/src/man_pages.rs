//! Manual pages and shell completions of a program, made from its command line. `make install` puts
//! them where the system looks for them.

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_complete::Shell;

/// A shell with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// Returns the completions of a program for `shell`.
pub fn completions(mut command: Command, shell: CompletedShell) -> Vec<u8> {
    let shell = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// Folder of each shell's completions, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Writes below `share` a page for the program, a page for each of its verbs, and the completions.
pub fn write(mut command: Command, share: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    // First: completions add the verb `help`, which needs no page.
    clap_mangen::generate_to(command.clone(), &pages)?;
    for (shell, place) in SHELLS {
        let place = share.join(place);
        fs::create_dir_all(&place)?;
        clap_complete::generate_to(shell, &mut command, &name, &place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_per_verb_and_one_file_per_shell() {
        let share = tempfile::tempdir().unwrap();
        let hidden = Command::new("inner").hide(true);
        let command = Command::new("weave")
            .about("Weaves")
            .subcommand(Command::new("show").about("Shows a step"))
            .subcommand(hidden);
        write(command, share.path()).unwrap();
        let read = |name: &str| fs::read_to_string(share.path().join(name)).unwrap();
        assert!(read("man/man1/weave.1").contains("Weaves"));
        assert!(read("man/man1/weave-show.1").contains("Shows a step"));
        for none in ["man/man1/weave-inner.1", "man/man1/weave-help.1"] {
            assert!(!share.path().join(none).exists(), "{none}");
        }
        assert!(read("bash-completion/completions/weave.bash").contains("show"));
        assert!(read("zsh/site-functions/_weave").contains("show"));
        assert!(read("fish/vendor_completions.d/weave.fish").contains("show"));
    }
}
