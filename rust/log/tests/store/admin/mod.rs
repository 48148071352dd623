//! Backup, verification, repair and information: the tools of a store's administrator.

mod backup;
mod cuts;
mod info;
mod repair;
mod sidecars;

mod trimmed;
mod verify;
