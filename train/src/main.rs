//! The `train` command.

fn main() -> std::process::ExitCode {
    hankel_train::main()
}
