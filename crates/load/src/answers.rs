//! Numbers that were answered, kept for `--check sequence`: 24 bytes each.

use crate::clock::Ns;

/// Answers in one block, so that growing never copies what is there.
const BLOCK: usize = 64 * 1024;

/// First offenders that are shown.
const SHOWN: usize = 5;

/// The numbers one thread was answered.
#[derive(Debug, Default)]
pub struct Answers {
    blocks: Vec<Vec<[u64; 3]>>,
    /// How many were not greater than the one before on their connection.
    pub out_of_order: u64,
    /// The first of those, in words.
    pub offenders: Vec<String>,
}

impl Answers {
    /// Keeps one answer; `last` is the previous number of its connection.
    pub fn add(&mut self, number: u64, sent: Ns, done: Ns, last: &mut Option<u64>) {
        if let Some(last) = *last
            && number <= last
        {
            self.out_of_order += 1;
            if self.offenders.len() < SHOWN {
                self.offenders
                    .push(format!("{number} after {last} on one connection"));
            }
        }
        *last = Some(number);
        match self.blocks.last_mut() {
            Some(block) if block.len() < BLOCK => block.push([number, sent, done]),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push([number, sent, done]);
                self.blocks.push(block);
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Writes them as little-endian triples of 64 bits: number, sent ns, done ns.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        for [number, sent, done] in self.blocks.iter().flatten() {
            out.write_all(&number.to_le_bytes())?;
            out.write_all(&sent.to_le_bytes())?;
            out.write_all(&done.to_le_bytes())?;
        }
        Ok(())
    }
}
