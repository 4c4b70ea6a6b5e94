//! Event files of TensorBoard: TFRecords (length and data, each with a masked CRC-32C) of `Event` messages in protocol buffers, of
//! which four kinds of field are needed.

use super::Scalar;

/// Tags of the messages' fields: field number and wire type.
mod tag {
    /// `Event.wall_time`, a double.
    pub(super) const WALL_TIME: u8 = 1 << 3 | 1;
    /// `Event.step`, a varint.
    pub(super) const STEP: u8 = 2 << 3;
    /// `Event.file_version`, a string.
    pub(super) const FILE_VERSION: u8 = 3 << 3 | 2;
    /// `Event.summary`, a message.
    pub(super) const SUMMARY: u8 = 5 << 3 | 2;
    /// `Summary.value`, a message.
    pub(super) const VALUE: u8 = 1 << 3 | 2;
    /// `Summary.Value.tag`, a string.
    pub(super) const NAME: u8 = 1 << 3 | 2;
    /// `Summary.Value.simple_value`, a float.
    pub(super) const SIMPLE_VALUE: u8 = 2 << 3 | 5;
}

/// The bytes of a file with these figures.
pub(super) fn file(scalars: &[&Scalar], begun: f64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut first = wall_time(begun);
    bytes(&mut first, tag::FILE_VERSION, b"brain.Event:2");
    record(&mut out, &first);
    for scalar in scalars {
        let mut value = Vec::new();
        bytes(&mut value, tag::NAME, scalar.name.as_bytes());
        value.push(tag::SIMPLE_VALUE);
        value.extend((scalar.value as f32).to_le_bytes());
        let mut summary = Vec::new();
        bytes(&mut summary, tag::VALUE, &value);
        let mut event = wall_time(begun + scalar.seconds);
        event.push(tag::STEP);
        varint(&mut event, scalar.step);
        bytes(&mut event, tag::SUMMARY, &summary);
        record(&mut out, &event);
    }
    out
}

/// Whether of two files one holds the figures of the other and perhaps more, whenever they were measured and however fast.
pub(super) fn are_of_one_run(one: &[u8], other: &[u8]) -> bool {
    let figures =
        |file| Some(figures(file)?.into_iter().filter(|figure| !figure.windows(SPEED.len()).any(|part| part == SPEED)));
    figures(one).zip(figures(other)).is_some_and(|(one, other)| one.zip(other).all(|(one, other)| one == other))
}

/// Name of the figure that differs from one time to the next.
const SPEED: &[u8] = b"train/tokens_per_second";

/// The messages of a file after their times; none of a file that is damaged.
fn figures(mut file: &[u8]) -> Option<Vec<&[u8]>> {
    /// Bytes of a message's time with its tag.
    const TIME: usize = 9;
    let mut out = Vec::new();
    while !file.is_empty() {
        let (length, rest) = file.split_first_chunk()?;
        let (data, rest) = rest.get(4..)?.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        out.push(data.get(TIME..)?);
        file = rest.get(4..)?;
    }
    Some(out)
}

fn wall_time(seconds: f64) -> Vec<u8> {
    let mut event = vec![tag::WALL_TIME];
    event.extend(seconds.to_le_bytes());
    event
}

fn bytes(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    varint(out, content.len() as u64);
    out.extend(content);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn record(out: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked_crc(&length).to_le_bytes());
    out.extend(data);
    out.extend(masked_crc(data).to_le_bytes());
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that TensorBoard 2.21's own writer (`tensorboard.summary.writer.record_writer`) makes of the same two events.
    #[test]
    fn the_bytes_of_the_original() {
        let scalar = Scalar { stage: "hrm".into(), step: 300, seconds: 2.5, name: "train/loss".into(), value: 1.25 };
        let hex = file(&[&scalar], 1000.0).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        assert_eq!(hex, ORIGINAL);
    }

    const ORIGINAL: &str = "1800000000000000a37f4b22090000000000408f401a0d627261696e2e4576656e743a3273ae6b562100000000000000017becf6090000\
        000000548f4010ac022a130a110a0a747261696e2f6c6f7373150000a03ffb44a234";
}
