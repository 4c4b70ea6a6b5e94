//! The bt binary: inspect, reduce and verify linear systems and adapters.
