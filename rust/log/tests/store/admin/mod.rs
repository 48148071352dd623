//! Backup, verification, repair and information: what those who look after a store rely on.

mod backup;
mod info;
mod repair;
mod sidecars;

mod trimmed;
mod verify;
