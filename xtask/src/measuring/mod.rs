//! What the chores that measure share: child processes and what they used, runs of floodmark, the server, the machine, and tables.

pub mod child;
pub mod load;
pub mod machine;
pub mod nginx;
pub mod programs;
pub mod statistics;
pub mod table;
