//! The producer daemon: sources, tokenizer, packing, upload, commit.
#![forbid(unsafe_code)]
