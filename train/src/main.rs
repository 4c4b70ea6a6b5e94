//! The `train` command.

#[global_allocator]
static ALLOCATOR: hankel_io::memory::Allocator = hankel_io::memory::Allocator;

fn main() -> std::process::ExitCode {
    hankel_train::main()
}
