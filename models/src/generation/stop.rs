//! Strings at which generation stops.

/// Passes text on until one of some strings appears in it. Text that may be the beginning of such a string is held back.
#[derive(Debug, Clone, Default)]
pub struct StopFilter {
    stops: Vec<Vec<u8>>,
    held: Vec<u8>,
    stopped: bool,
}

impl StopFilter {
    /// Stops at any of `stops`; empty ones are left out.
    pub fn new<S: AsRef<[u8]>>(stops: &[S]) -> Self {
        let stops = stops.iter().map(|stop| stop.as_ref().to_vec()).filter(|stop| !stop.is_empty()).collect();
        StopFilter { stops, ..StopFilter::default() }
    }

    /// Whether one of the strings has appeared.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Adds text and gives what is certain to be before any of the strings.
    pub fn push(&mut self, text: &[u8]) -> Vec<u8> {
        if self.stopped {
            return Vec::new();
        }
        self.held.extend_from_slice(text);
        let found = self.stops.iter().filter_map(|stop| self.held.windows(stop.len()).position(|part| part == stop));
        if let Some(first) = found.min() {
            self.stopped = true;
            self.held.truncate(first);
            return std::mem::take(&mut self.held);
        }
        let begins = |from: usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[from..]));
        let certain = (0..self.held.len()).find(|&from| begins(from)).unwrap_or(self.held.len());
        self.held.drain(..certain).collect()
    }

    /// What was held back, when no more text comes.
    pub fn finish(self) -> Vec<u8> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut filter = StopFilter::new(stops);
        let mut text: Vec<u8> = pieces.iter().flat_map(|piece| filter.push(piece.as_bytes())).collect();
        let stopped = filter.stopped();
        text.extend(filter.finish());
        (String::from_utf8(text).unwrap(), stopped)
    }

    #[test]
    fn stops_across_pieces_and_at_the_first_string() {
        assert_eq!(through(&["\n\n"], &["a\n", "b\n", "\nc"]), ("a\nb".into(), true));
        assert_eq!(through(&["end", "en"], &["the e", "nd"]), ("the ".into(), true));
        assert_eq!(through(&["b", "a"], &["xab"]), ("x".into(), true));
        assert_eq!(through(&["aab"], &["a", "a", "a", "b"]), ("a".into(), true));
    }

    #[test]
    fn text_that_only_begins_like_a_stop_is_kept() {
        assert_eq!(through(&["###"], &["a##", "b", "##"]), ("a##b##".into(), false));
        assert_eq!(through(&[], &["a", "b"]), ("ab".into(), false));
        assert_eq!(through(&[""], &["a", "b"]), ("ab".into(), false));
        let mut filter = StopFilter::new(&["###"]);
        assert_eq!(filter.push(b"a#"), b"a");
        assert_eq!(filter.push(b"b"), b"#b");
    }
}
