//! floodmark-report
