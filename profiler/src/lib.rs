//! Measures pairs on a device: campaign, plan, protocol, workers, journal.
