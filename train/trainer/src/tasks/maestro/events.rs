//! Performances as tokens: notes that begin and end, the time between, how loud.
//!
//! After S. Oore, I. Simon, S. Dieleman, D. Eck and K. Simonyan, This Time with Feeling: Learning Expressive Musical Performance
//! (2018), with fewer tokens: 128 for notes that begin, 128 for notes that end, 32 for time and 12 for velocity, 300 in all. A step
//! of time is 10 ms, as there. Theirs have a token for each of the times up to a second; here 15 tokens are 1 to 15 steps and 17
//! are 1 to 17 times 16 steps, so that two tokens say any time up to 2.87 s, exactly, and further ones any longer time. Velocities
//! are in 12 bins instead of 32, and named only when they change.
//!
//! Notes are encoded with their lengths as they sound ([`super::midi`] says what the pedal does), so that [`decode`] gives back what
//! [`encode`] was given.

use std::fmt;

/// Length of a step of time in seconds.
pub const STEP: f64 = 0.01;
/// Number of tokens.
pub const VOCABULARY: usize = 300;

const PITCHES: u16 = 128;
/// Times of less than this many steps are one token, multiples of it another.
const COARSE: u32 = 16;
const MOST_COARSE: u32 = 17;
const VELOCITIES: u16 = 12;
const OFF: u16 = PITCHES;
const SHIFT: u16 = 2 * PITCHES;
const VELOCITY: u16 = SHIFT + (COARSE - 1 + MOST_COARSE) as u16;

/// A note in steps of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// When it begins.
    pub on: u32,
    /// MIDI's number, 60 for middle C.
    pub pitch: u8,
    /// When it ends, later than it begins.
    pub off: u32,
    /// Bin of the velocity, 0 to 11.
    pub velocity: u8,
}

/// A note as it was played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Played {
    /// MIDI's number.
    pub pitch: u8,
    /// MIDI's velocity, 1 to 127.
    pub velocity: u8,
    /// Seconds at which it begins.
    pub on: f64,
    /// Seconds at which it ends.
    pub off: f64,
}

/// What a token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A note begins.
    On(u8),
    /// A note ends.
    Off(u8),
    /// Time passes, in steps.
    Shift(u32),
    /// Notes are as loud as this bin from here on.
    Velocity(u8),
}

impl Event {
    /// The token of an event; a time must be one that a token has.
    fn token(self) -> u16 {
        match self {
            Event::On(pitch) => u16::from(pitch),
            Event::Off(pitch) => OFF + u16::from(pitch),
            Event::Shift(steps) if steps < COARSE => SHIFT + steps as u16 - 1,
            Event::Shift(steps) => SHIFT + (COARSE - 2 + steps / COARSE) as u16,
            Event::Velocity(bin) => VELOCITY + u16::from(bin),
        }
    }

    /// What `token` says, if it is one.
    pub fn of(token: u32) -> Option<Self> {
        let token = u16::try_from(token).ok()?;
        Some(match token {
            0..OFF => Event::On(token as u8),
            OFF..SHIFT => Event::Off((token - OFF) as u8),
            SHIFT..VELOCITY => match u32::from(token - SHIFT) + 1 {
                steps if steps < COARSE => Event::Shift(steps),
                steps => Event::Shift((steps - COARSE + 1) * COARSE),
            },
            _ if token < VELOCITY + VELOCITIES => Event::Velocity((token - VELOCITY) as u8),
            _ => return None,
        })
    }
}

/// `on60`, `off60`, `+120ms`, `velocity7`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::On(pitch) => write!(f, "on{pitch}"),
            Event::Off(pitch) => write!(f, "off{pitch}"),
            Event::Shift(steps) => write!(f, "+{}ms", steps * 10),
            Event::Velocity(bin) => write!(f, "velocity{bin}"),
        }
    }
}

/// The token that is written as `name`.
pub fn token(name: &str) -> Option<u32> {
    (0..VOCABULARY as u32).find(|&token| Event::of(token).is_some_and(|event| event.to_string() == name))
}

/// The bin of a MIDI velocity.
pub fn velocity_bin(velocity: u8) -> u8 {
    (u16::from(velocity.clamp(1, 127) - 1) * VELOCITIES / 127) as u8
}

/// The MIDI velocity in the middle of a bin.
pub fn velocity_of_bin(bin: u8) -> u8 {
    1 + ((2 * u16::from(bin) + 1) * 127 / (2 * VELOCITIES)) as u8
}

/// Notes on the grid of steps, from the first one on. A note is at least a step long, and ends when its pitch is struck again; of
/// two that begin in one step on the same pitch, the later one stays.
pub fn quantize(played: &[Played]) -> Vec<Note> {
    let begin = played.iter().map(|note| note.on).fold(f64::INFINITY, f64::min);
    let step = |time: f64| ((time - begin) / STEP).round() as u32;
    let mut in_order: Vec<&Played> = played.iter().collect();
    in_order.sort_by(|a, b| a.on.total_cmp(&b.on));
    let note = |played: &Played| {
        let on = step(played.on);
        let velocity = velocity_bin(played.velocity);
        Note { on, pitch: played.pitch, off: step(played.off).max(on.saturating_add(1)), velocity }
    };
    settle(in_order.into_iter().map(note))
}

/// Notes in the order of their beginnings, each pitch one at a time.
fn settle(notes: impl Iterator<Item = Note>) -> Vec<Note> {
    let mut settled: Vec<Note> = Vec::new();
    let mut latest = [None::<usize>; 1 << 7];
    for note in notes {
        let slot = &mut latest[usize::from(note.pitch)];
        match *slot {
            Some(index) if settled[index].on == note.on => {
                settled[index] = note;
                continue;
            }
            Some(index) => settled[index].off = settled[index].off.min(note.on),
            None => {}
        }
        *slot = Some(settled.len());
        settled.push(note);
    }
    settled.sort_unstable();
    settled
}

/// The tokens of notes as [`quantize`] and [`decode`] give them.
pub fn encode(notes: &[Note]) -> Vec<u16> {
    // What ends comes before what begins in the same step.
    let ends = notes.iter().map(|note| (note.off, false, note.pitch, note.velocity));
    let mut changes: Vec<_> = ends.chain(notes.iter().map(|note| (note.on, true, note.pitch, note.velocity))).collect();
    changes.sort_unstable();
    let mut tokens = Vec::with_capacity(3 * notes.len());
    let (mut now, mut loud) = (0, None);
    for (time, begins, pitch, velocity) in changes {
        while now < time {
            let gap = time - now;
            let shift = if gap < COARSE { gap } else { (gap / COARSE).min(MOST_COARSE) * COARSE };
            tokens.push(Event::Shift(shift).token());
            now += shift;
        }
        if begins && loud != Some(velocity) {
            tokens.push(Event::Velocity(velocity).token());
            loud = Some(velocity);
        }
        tokens.push(if begins { Event::On(pitch) } else { Event::Off(pitch) }.token());
    }
    tokens
}

/// The notes of any sequence of tokens, such as those of a model: a note that is never ended ends with the last token,
/// an end without a beginning is nothing, and without a velocity notes are of the middle bin.
pub fn decode(tokens: impl IntoIterator<Item = u32>) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut open = [None::<(u32, u8)>; 1 << 7];
    let (mut now, mut loud) = (0_u32, VELOCITIES as u8 / 2);
    let end = |pitch: u8, begun: Option<(u32, u8)>, now: u32| {
        begun.map(|(on, velocity)| Note { on, pitch, off: now.max(on.saturating_add(1)), velocity })
    };
    for event in tokens.into_iter().filter_map(Event::of) {
        match event {
            Event::Shift(steps) => now = now.saturating_add(steps),
            Event::Velocity(bin) => loud = bin,
            Event::On(pitch) => {
                notes.extend(end(pitch, open[usize::from(pitch)].replace((now, loud)), now));
            }
            Event::Off(pitch) => notes.extend(end(pitch, open[usize::from(pitch)].take(), now)),
        }
    }
    notes.extend((0..).zip(open).filter_map(|(pitch, begun)| end(pitch, begun, now)));
    notes.sort_by_key(|note| note.on);
    settle(notes.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_hundred_tokens() {
        let mut names = std::collections::BTreeSet::new();
        for id in 0..VOCABULARY as u32 {
            let event = Event::of(id).unwrap();
            assert_eq!(u32::from(event.token()), id, "{event}");
            assert_eq!(token(&event.to_string()), Some(id));
            names.insert(event.to_string());
        }
        assert_eq!((names.len(), Event::of(300), token("on128")), (300, None, None));
        assert_eq!((Event::of(256), Event::of(270)), (Some(Event::Shift(1)), Some(Event::Shift(15))));
        assert_eq!((Event::of(271), Event::of(287)), (Some(Event::Shift(16)), Some(Event::Shift(272))));
        for bin in 0..12 {
            assert_eq!(velocity_bin(velocity_of_bin(bin)), bin);
        }
        assert_eq!((velocity_bin(0), velocity_bin(1), velocity_bin(127)), (0, 0, 11));
        assert!((1..=127).all(|v: u8| velocity_of_bin(velocity_bin(v)).abs_diff(v) <= 6));
    }

    #[test]
    fn a_phrase() {
        let played = |pitch, velocity, on, off| Played { pitch, velocity, on, off };
        // Struck again while it sounds; shorter than a step; two at once.
        let notes = quantize(&[
            played(60, 64, 2.0, 3.0),
            played(60, 64, 2.5, 2.8),
            played(64, 127, 2.5, 2.501),
            played(67, 1, 6.0, 6.2),
        ]);
        let text: Vec<String> =
            encode(&notes).iter().filter_map(|&id| Event::of(id.into())).map(|event| event.to_string()).collect();
        assert_eq!(
            text.join(" "),
            "velocity5 on60 +480ms +20ms off60 on60 velocity11 on64 +10ms off64 +160ms +130ms off60 +2720ms +480ms velocity0 on67 \
             +160ms +40ms off67"
        );
    }

    fn played() -> impl Strategy<Value = Vec<Played>> {
        // On a grid of 1 ms, with few pitches, so that notes meet.
        let note = (0_u8..128, 1_u8..128, 0_u32..9000, 0_u32..4000, any::<bool>());
        let note = note.prop_map(|(pitch, velocity, on, length, few)| Played {
            pitch: if few { pitch % 3 } else { pitch },
            velocity,
            on: f64::from(on) / 1000.0,
            off: f64::from(on + length) / 1000.0,
        });
        proptest::collection::vec(note, 0..60)
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(played in played()) {
            let notes = quantize(&played);
            let tokens = encode(&notes);
            prop_assert_eq!(&decode(tokens.iter().map(|&token| u32::from(token))), &notes);
            // Each pitch one note at a time, each at least a step.
            for (place, note) in notes.iter().enumerate() {
                prop_assert!(note.on < note.off);
                let next = notes[place + 1..].iter().find(|other| other.pitch == note.pitch);
                prop_assert!(next.is_none_or(|next| next.on >= note.off));
            }
            // Within half a step of what was played.
            let begin = played.iter().map(|note| note.on).fold(f64::INFINITY, f64::min);
            for note in &notes {
                let from = |one: &&Played| {
                    let on = f64::from(note.on) * STEP - (one.on - begin);
                    one.pitch == note.pitch && velocity_bin(one.velocity) == note.velocity && on.abs() < 0.5 * STEP + 1e-9
                };
                prop_assert!(played.iter().any(|one| from(&one)), "{:?}", note);
            }
        }

        #[test]
        fn any_tokens_are_notes(tokens in proptest::collection::vec(0_u32..310, 0..200)) {
            let notes = decode(tokens);
            prop_assert_eq!(decode(encode(&notes).into_iter().map(u32::from)), notes);
        }
    }
}
