//! Standard MIDI files of piano performances.
//!
//! All tracks and channels are taken as one piano. The sustain pedal (controller 64, down from 64 on) is turned into the length of
//! notes, as in the work that the tokens are after: a note sounds until key and pedal are both up, or until it is struck again.
//! Other controllers, the soft pedal among them, are left out.

use super::events::{Note, Played, STEP, velocity_of_bin};
use midly::num::{u4, u7, u15, u24, u28};
use midly::{Format, Header, MetaMessage, MidiMessage, Smf, Timing, TrackEvent, TrackEventKind};

/// Microseconds of a quarter note where no tempo is given.
const TEMPO: u32 = 500_000;
/// Longer ones are taken for damaged: silence is tokens, too.
const MOST_HOURS: f64 = 24.0;
/// The controller of the sustain pedal, and the least value at which it is down.
const SUSTAIN: u8 = 64;
const DOWN: u8 = 64;
/// Ticks of a quarter note in files that are written: a tick is a millisecond.
const TICKS: u16 = 500;

/// The notes in the bytes of a file, in the order of their ends.
///
/// # Errors
/// When it is not a Standard MIDI File, or one that cannot be a performance.
pub fn read(bytes: &[u8]) -> Result<Vec<Played>, String> {
    // The parser negates the frames of a second as they are stored, which of -128 overflows, in every header that it meets.
    if bytes.windows(13).any(|header| header.starts_with(b"MThd") && header[12] == 0x80) {
        return Err("a MIDI file of 128 frames a second, where there are 24, 25, 29 or 30".to_owned());
    }
    let smf = Smf::parse(bytes).map_err(|error| format!("not a whole MIDI file ({error})"))?;
    if smf.header.format == Format::Sequential {
        return Err("a MIDI file of format 2, whose tracks are pieces of their own".to_owned());
    }
    // Seconds of a tick at a tempo.
    let tick = |tempo: u32| match smf.header.timing {
        Timing::Metrical(ticks) => f64::from(tempo) * 1e-6 / f64::from(ticks.as_int()),
        Timing::Timecode(frames, ticks) => 1.0 / (f64::from(frames.as_f32()) * f64::from(ticks)),
    };
    if !tick(TEMPO).is_finite() {
        return Err("a MIDI file without a unit of time".to_owned());
    }
    let mut events = Vec::new();
    for track in &smf.tracks {
        let mut time = 0_u64;
        for event in track {
            time += u64::from(event.delta.as_int());
            events.push((time, event.kind));
        }
    }
    events.sort_by_key(|&(time, _)| time);
    let mut piano = Piano::default();
    let (mut seconds, mut last, mut tempo) = (0.0, 0, TEMPO);
    for (time, kind) in events {
        seconds += (time - last) as f64 * tick(tempo);
        last = time;
        if seconds > MOST_HOURS * 3600.0 {
            return Err(format!("a MIDI file of more than {MOST_HOURS} hours"));
        }
        match kind {
            TrackEventKind::Meta(MetaMessage::Tempo(new)) => tempo = new.as_int(),
            TrackEventKind::Midi { channel, message } => piano.hear(seconds, channel, message),
            _ => {}
        }
    }
    Ok(piano.finish(seconds))
}

/// A note that sounds.
#[derive(Clone, Copy)]
struct Sounding {
    on: f64,
    velocity: u8,
    channel: u4,
    key_is_down: bool,
}

/// What sounds at a moment, and what has sounded.
struct Piano {
    strings: [Option<Sounding>; 1 << 7],
    /// Whether the pedal is down, by channel.
    pedal: [bool; 1 << 4],
    played: Vec<Played>,
}

impl Default for Piano {
    fn default() -> Self {
        Piano { strings: [None; 1 << 7], pedal: [false; 1 << 4], played: Vec::new() }
    }
}

impl Piano {
    fn hear(&mut self, now: f64, channel: u4, message: MidiMessage) {
        let pedal = &mut self.pedal[usize::from(channel.as_int())];
        match message {
            MidiMessage::NoteOn { key, vel } if vel.as_int() > 0 => {
                self.end(key, now);
                let sounding = Sounding { on: now, velocity: vel.as_int(), channel, key_is_down: true };
                self.strings[usize::from(key.as_int())] = Some(sounding);
            }
            MidiMessage::NoteOn { key, .. } | MidiMessage::NoteOff { key, .. } => {
                if *pedal {
                    self.strings[usize::from(key.as_int())].iter_mut().for_each(|note| note.key_is_down = false);
                } else {
                    self.end(key, now);
                }
            }
            MidiMessage::Controller { controller, value } if controller.as_int() == SUSTAIN => {
                *pedal = value.as_int() >= DOWN;
                if *pedal {
                    return;
                }
                for key in 0..1 << 7 {
                    if self.strings[usize::from(key)].is_some_and(|note| note.channel == channel && !note.key_is_down) {
                        self.end(key.into(), now);
                    }
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, key: u7, now: f64) {
        if let Some(Sounding { on, velocity, .. }) = self.strings[usize::from(key.as_int())].take() {
            self.played.push(Played { pitch: key.as_int(), velocity, on, off: now });
        }
    }

    fn finish(mut self, now: f64) -> Vec<Played> {
        (0..1 << 7).for_each(|key: u8| self.end(key.into(), now));
        self.played
    }
}

/// Notes as a MIDI file of one track, its velocities in the middle of their bins.
pub fn write(notes: &[Note]) -> Vec<u8> {
    let ends = notes.iter().map(|note| (note.off, false, note.pitch, 0));
    let begins = notes.iter().map(|note| (note.on, true, note.pitch, velocity_of_bin(note.velocity)));
    let mut changes: Vec<_> = ends.chain(begins).collect();
    changes.sort_unstable();
    let tick = |step: u32| u64::from(step) * (STEP * 2.0 * f64::from(TICKS)) as u64;
    let meta = |message| TrackEvent { delta: u28::new(0), kind: TrackEventKind::Meta(message) };
    let mut track = vec![meta(MetaMessage::Tempo(u24::new(TEMPO)))];
    let mut last = 0;
    for (step, begins, pitch, velocity) in changes {
        let (key, vel) = (u7::new(pitch), u7::new(velocity));
        let message = if begins { MidiMessage::NoteOn { key, vel } } else { MidiMessage::NoteOff { key, vel } };
        let delta = (tick(step) - last).min(u64::from(u28::max_value().as_int())) as u32;
        last = tick(step);
        track.push(TrackEvent { delta: u28::new(delta), kind: TrackEventKind::Midi { channel: u4::new(0), message } });
    }
    track.push(meta(MetaMessage::EndOfTrack));
    let header = Header { format: Format::SingleTrack, timing: Timing::Metrical(u15::new(TICKS)) };
    let mut bytes = Vec::new();
    Smf { header, tracks: vec![track] }.write_std(&mut bytes).expect("memory can be written to");
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::events::{decode, encode, quantize};
    use super::*;
    use proptest::prelude::*;

    /// A file of two tracks with 480 ticks a quarter: the tempi, and channel messages, each with its tick.
    fn file(tempi: &[(u32, u32)], messages: &[(u32, MidiMessage)]) -> Vec<u8> {
        fn track<'a>(events: impl Iterator<Item = (u32, TrackEventKind<'a>)>) -> Vec<TrackEvent<'a>> {
            let mut last = 0;
            let mut track: Vec<TrackEvent<'a>> = events
                .map(|(tick, kind)| TrackEvent { delta: u28::new(tick - std::mem::replace(&mut last, tick)), kind })
                .collect();
            track.push(TrackEvent { delta: u28::new(0), kind: TrackEventKind::Meta(MetaMessage::EndOfTrack) });
            track
        }
        let tempi =
            tempi.iter().map(|&(tick, tempo)| (tick, TrackEventKind::Meta(MetaMessage::Tempo(u24::new(tempo)))));
        let channel = u4::new(0);
        let messages = messages.iter().map(|&(tick, message)| (tick, TrackEventKind::Midi { channel, message }));
        let header = Header { format: Format::Parallel, timing: Timing::Metrical(u15::new(480)) };
        let mut bytes = Vec::new();
        Smf { header, tracks: vec![track(tempi), track(messages)] }.write_std(&mut bytes).unwrap();
        bytes
    }

    fn on(key: u8, vel: u8) -> MidiMessage {
        MidiMessage::NoteOn { key: u7::new(key), vel: u7::new(vel) }
    }

    fn pedal(value: u8) -> MidiMessage {
        MidiMessage::Controller { controller: u7::new(64), value: u7::new(value) }
    }

    #[test]
    fn pedal_and_tempo() {
        // A quarter is half a second, from tick 960 on (second 1) a whole one.
        let bytes = file(
            &[(0, 500_000), (960, 1_000_000)],
            &[
                (0, on(60, 80)),
                (240, pedal(64)),
                (480, on(60, 0)),
                (480, on(62, 70)),
                (720, on(62, 0)),
                (960, on(60, 90)),
                (1200, pedal(63)),
                (1440, on(60, 0)),
                (1920, on(61, 5)),
            ],
        );
        let found = read(&bytes).unwrap();
        let expected = [
            // Held by the pedal until it is struck again.
            (60, 80, 0.0, 1.0),
            // Until the pedal is up.
            (62, 70, 0.5, 1.5),
            // By its key.
            (60, 90, 1.0, 2.0),
            // Never ended.
            (61, 5, 3.0, 3.0),
        ];
        assert_eq!(found, expected.map(|(pitch, velocity, on, off)| Played { pitch, velocity, on, off }));
    }

    #[test]
    fn what_is_written_is_read() {
        let notes = decode([295, 60, 300, 64, 259, 188, 290, 60, 287, 280, 188, 192, 1, 256, 129]);
        assert_eq!(notes.len(), 4);
        assert_eq!(quantize(&read(&write(&notes)).unwrap()), notes);
        assert!(read(&write(&[])).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_a_performance() {
        let refused = |bytes: &[u8]| read(bytes).unwrap_err();
        assert!(refused(b"RIFF of something else").contains("not a whole MIDI file"));
        let whole = file(&[], &[(0, on(60, 80)), (100, on(60, 0))]);
        assert_eq!(read(&whole).unwrap().len(), 1);
        assert!(refused(&whole[..whole.len() - 6]).contains("not a whole MIDI file"));
        let with = |place: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[place] = byte;
            bytes
        };
        assert!(refused(&with(9, 2)).contains("format 2"), "{}", refused(&with(9, 2)));
        let mut timeless = with(12, 0);
        timeless[13] = 0;
        assert!(refused(&timeless).contains("without a unit of time"));
        assert!(refused(&with(12, 0x80)).contains("of 128 frames a second"));
        assert!(refused(&[whole.as_slice(), &with(12, 0x80)].concat()).contains("of 128 frames a second"));
        let endless = file(&[(0, 16_000_000)], &[(0, on(60, 80)), (1 << 27, on(60, 0))]);
        assert!(refused(&endless).contains("more than 24 hours"));
    }

    proptest! {
        #[test]
        fn damaged_files_are_read_or_refused(
            mut places in proptest::collection::vec((0_usize..200, any::<u8>()), 1..6),
            end in 20_usize..200,
        ) {
            let messages: Vec<(u32, MidiMessage)> =
                (0..30).map(|i| (i * 50, if i % 5 == 4 { pedal(i as u8 * 4) } else { on(60 + i as u8 % 4, i as u8 % 3) })).collect();
            let mut bytes = file(&[(0, 500_000), (300, 400_000)], &messages);
            places.retain(|(place, _)| *place < bytes.len());
            for (place, byte) in places {
                bytes[place] = byte;
            }
            bytes.truncate(end);
            if let Ok(played) = read(&bytes) {
                let notes = quantize(&played);
                prop_assert_eq!(decode(encode(&notes).into_iter().map(u32::from)), notes);
            }
        }
    }
}
