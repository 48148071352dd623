//! The program `falaj-server`: reads its configuration, serves, and says in one sentence why it cannot.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a program speaks

use std::io::IsTerminal as _;
use std::process::ExitCode;

use falaj_server::access::{digest, mint};
use falaj_server::config::{Begin, Config, LogFormat, load};
use falaj_server::memory::give_back_large_blocks;
use falaj_server::run::run;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match begin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("falaj-server: {why}");
            ExitCode::from(2)
        }
    }
}

fn begin() -> Result<(), String> {
    match load(std::env::args_os(), std::env::vars_os())? {
        Begin::Print(text) => print!("{text}"),
        Begin::Mint => {
            let token = mint()?;
            let hex: String = digest(&token).iter().map(|byte| format!("{byte:02x}")).collect();
            println!("token  {token}\nsha256 {hex}");
        }
        Begin::Serve(config) => {
            log(&config)?;
            give_back_large_blocks();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .max_blocking_threads(64)
                .build();
            let runtime = runtime.map_err(|error| format!("no threads: {error}"))?;
            let ended = runtime.block_on(run(*config));
            // A read that hangs in the kernel must not keep the process.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            ended?;
        }
    }
    Ok(())
}

fn log(config: &Config) -> Result<(), String> {
    let filter =
        EnvFilter::try_new(&config.log.level).map_err(|error| format!("log.level: {error}"))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_target(false);
    match config.log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    }
    .map_err(|error| error.to_string())
}
