//! `hippihxctl top`: the figures of `stats` with rates, drawn again and again.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, queue};
use hippihx_client::Stub;
use hippihx_proto::v1;

use super::stats;
use crate::failure::Usage;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the figures once, and end
    #[arg(long)]
    once: bool,
    /// Milliseconds from one look to the next
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval: u64,
}

pub async fn run(socket: &Path, args: &Args, json: bool) -> Result<u8> {
    let mut stub = super::connect(socket).await?;
    let mut last = ask(&mut stub).await?;
    if args.once {
        if json {
            output::json(&stats::value(&last));
        } else {
            output::line(&stats::text(&last));
        }
        return Ok(0);
    }
    if json {
        bail!(Usage("top draws a screen; with --json give --once".to_owned()));
    }
    if !std::io::stdout().is_terminal() {
        bail!(Usage("top draws on a terminal; elsewhere give --once".to_owned()));
    }
    let _screen = Screen::enter()?;
    let mut rate = None;
    loop {
        draw(&last, rate)?;
        if wants_to_leave(Duration::from_millis(args.interval))? {
            return Ok(0);
        }
        let now = ask(&mut stub).await?;
        rate = runs_per_second(&last, &now);
        last = now;
    }
}

async fn ask(stub: &mut Stub) -> Result<v1::StatsResponse> {
    Ok(stub.stats(v1::StatsRequest {}).await?.into_inner())
}

/// Completed runs between two looks; none when the clock did not move or another daemon answered.
fn runs_per_second(before: &v1::StatsResponse, now: &v1::StatsResponse) -> Option<f64> {
    let count = |stats: &v1::StatsResponse| stats.runs.iter().map(|run| run.count).sum::<u64>();
    let us = now.uptime_us.checked_sub(before.uptime_us).filter(|us| *us > 0)?;
    Some(count(now).checked_sub(count(before))? as f64 * 1e6 / us as f64)
}

fn draw(figures: &v1::StatsResponse, rate: Option<f64>) -> Result<()> {
    let rate = rate.map_or_else(|| "…".to_owned(), |rate| format!("{rate:.0}"));
    let text = format!("{rate} runs/s    q leaves\n\n{}", stats::text(figures));
    // A terminal that does not know its size says 0.
    let rows =
        crossterm::terminal::size().ok().map(|(_, rows)| usize::from(rows)).filter(|rows| *rows > 0).unwrap_or(24);
    let mut out = std::io::stdout().lock();
    queue!(out, Clear(ClearType::All), cursor::MoveTo(0, 0))?;
    // Raw mode: a line feed alone does not go back to the first column.
    write!(out, "{}", text.lines().take(rows).collect::<Vec<_>>().join("\r\n"))?;
    out.flush()?;
    Ok(())
}

/// Waits for the next look, or for a key that ends it.
fn wants_to_leave(interval: Duration) -> Result<bool> {
    if !poll(interval)? {
        return Ok(false);
    }
    Ok(match read()? {
        Event::Key(key) => {
            matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
                || (key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL))
        }
        _ => false,
    })
}

/// The other screen of the terminal; whatever happens, the first comes back.
struct Screen;

impl Screen {
    fn enter() -> Result<Screen> {
        enable_raw_mode()?;
        let screen = Screen;
        queue!(std::io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = std::io::stdout();
        let _ = queue!(out, cursor::Show, LeaveAlternateScreen);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_daemons_own_clock() {
        let at = |uptime_us, counts: &[u64]| v1::StatsResponse {
            uptime_us,
            runs: counts.iter().map(|count| v1::RunCount { count: *count, ..Default::default() }).collect(),
            ..Default::default()
        };
        assert_eq!(runs_per_second(&at(1_000_000, &[5]), &at(3_000_000, &[20, 5])), Some(10.0));
        // Another daemon at the same socket.
        assert_eq!(runs_per_second(&at(9, &[5]), &at(3, &[0])), None);
        assert_eq!(runs_per_second(&at(3, &[5]), &at(9, &[0])), None);
    }
}
