//! What the chores that measure share: child processes and what they used, the server, the machine, and tables.

pub mod child;
pub mod machine;
pub mod nginx;
pub mod programs;
pub mod statistics;
pub mod table;
