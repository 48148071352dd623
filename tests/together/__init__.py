"""All features of a store in any order, compared with plain lists; docs/RELIABILITY.md."""
