//! Writes finished blocks one after another, within quotes and list items.

use super::inline_text::longest_backtick_run;

/// The maximum depth of quotes and list items. What is deeper is written at this depth.
const MAX_CONTAINERS: usize = 24;
/// The largest number of a list item (`CommonMark`, 5.2).
const MAX_ITEM_NUMBER: u32 = 999_999_999;

/// A block that contains blocks, and puts something before each line of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Quote,
    Item {
        /// The number of an item of an ordered list.
        number: Option<u32>,
        /// Whether the first line of the item has been written.
        is_started: bool,
    },
    /// The start of the main content: what contains it does not count.
    Root,
}

impl Container {
    fn push_to(self, prefix: &mut String) {
        match self {
            Container::Quote => prefix.push_str("> "),
            Container::Item { number, is_started } => {
                let start = prefix.len();
                match number {
                    Some(number) => prefix.push_str(&number.to_string()),
                    None => prefix.push('-'),
                }
                prefix.push_str(if number.is_some() { ". " } else { " " });
                if is_started {
                    let len = prefix.len() - start;
                    prefix.truncate(start);
                    prefix.extend(std::iter::repeat_n(' ', len));
                }
            }
            Container::Root => {}
        }
    }
}

/// The white space between two blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum BlockSeparator {
    /// The end of the line.
    Line,
    #[default]
    BlankLine,
}

/// The blocks that have been written.
#[derive(Debug, Default)]
pub(super) struct BlockWriter {
    text: String,
    max_bytes: usize,
    is_cut: bool,
    block_starts: Vec<u32>,
    containers: Vec<Container>,
    /// The smallest number of containers since the last block.
    shared_containers: usize,
    separator: BlockSeparator,
    /// The marks of the containers before each line of the current block but its first.
    line_prefix: String,
}

impl BlockWriter {
    pub(super) fn new(max_bytes: usize) -> Self {
        BlockWriter { max_bytes, ..BlockWriter::default() }
    }

    /// Discards all blocks. Containers stay open.
    pub(super) fn restart(&mut self) {
        self.text.clear();
        self.block_starts.clear();
        self.is_cut = false;
    }

    /// The length of the text, in bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The number of bytes that may still be written.
    pub(super) fn remaining_bytes(&self) -> usize {
        if self.is_cut { 0 } else { self.max_bytes.saturating_sub(self.text.len()) }
    }

    /// The number of open containers.
    pub(super) fn depth(&self) -> usize {
        self.containers.len()
    }

    /// Whether the innermost container is an item that has begun.
    pub(super) fn is_in_item(&self) -> bool {
        matches!(self.containers.last(), Some(Container::Item { is_started: true, .. }))
    }

    pub(super) fn start_quote(&mut self) {
        self.start_container(Container::Quote);
    }

    /// Starts an item of a list; of an ordered one with its number.
    pub(super) fn start_item(&mut self, number: Option<u32>) {
        let number = number.map(|number| number.min(MAX_ITEM_NUMBER));
        self.start_container(Container::Item { number, is_started: false });
    }

    /// Starts a part of the page that is written as if nothing contained it.
    pub(super) fn start_root(&mut self) {
        self.containers.push(Container::Root);
    }

    fn start_container(&mut self, container: Container) {
        if self.containers.len() < MAX_CONTAINERS {
            self.containers.push(container);
        }
    }

    /// Ends the containers from a depth on.
    pub(super) fn end_containers(&mut self, depth: usize) {
        self.containers.truncate(depth);
        self.shared_containers = self.shared_containers.min(self.containers.len());
    }

    /// Sets the white space before the next block.
    pub(super) fn set_separator(&mut self, separator: BlockSeparator) {
        self.separator = separator;
    }

    /// Writes a block with `mark` before its first line. Returns its start; `None` if it does not fit.
    pub(super) fn write_block(&mut self, mark: &str, content: &str) -> Option<usize> {
        let mut lines = content.split('\n');
        let first = lines.next().unwrap_or_default();
        let start = self.start_block(mark.len() + first.len() + 1)?;
        self.text.push_str(mark);
        self.text.push_str(first);
        for line in lines {
            if !self.write_line(line, 0) {
                break;
            }
        }
        Some(start)
    }

    /// Writes a fenced code block. The fence is longer than any run of backticks in the code (`CommonMark`, 4.5).
    pub(super) fn write_code_block(&mut self, language: &str, code: &str) -> Option<usize> {
        let fence = "`".repeat(longest_backtick_run(code).max(2) + 1);
        // The end of the block must fit, too.
        let start = self.start_block(2 * fence.len() + language.len() + MAX_CONTAINERS * 16)?;
        let end_len = fence.len() + self.line_prefix.len() + 1;
        self.text.push_str(&fence);
        self.text.push_str(language);
        for line in code.split('\n') {
            if !self.write_line(line, end_len) {
                break;
            }
        }
        self.push_line(&fence);
        Some(start)
    }

    /// Writes what separates a block from the one before, and what its containers have before its first line. Returns
    /// the start of this line; `None` if a line of `len` bytes does not fit.
    fn start_block(&mut self, len: usize) -> Option<usize> {
        let text_len = self.text.len();
        if self.is_cut {
            return None;
        }
        let base = self.containers.iter().rposition(|container| *container == Container::Root).map_or(0, |at| at + 1);
        if !self.text.is_empty() {
            self.text.push('\n');
            if self.separator == BlockSeparator::BlankLine {
                let shared = self.containers.get(base..self.shared_containers).unwrap_or_default();
                let mut prefix = String::new();
                for container in shared {
                    container.push_to(&mut prefix);
                }
                self.text.push_str(prefix.trim_end());
                self.text.push('\n');
            }
        }
        let start = self.text.len();
        self.line_prefix.clear();
        let mut first_prefix = String::new();
        for container in &self.containers[base..] {
            container.push_to(&mut first_prefix);
        }
        if start + first_prefix.len() + len > self.max_bytes {
            self.text.truncate(text_len);
            self.is_cut = true;
            return None;
        }
        for container in &mut self.containers[base..] {
            if let Container::Item { is_started, .. } = container {
                *is_started = true;
            }
            container.push_to(&mut self.line_prefix);
        }
        self.text.push_str(&first_prefix);
        self.block_starts.push(start as u32);
        self.separator = BlockSeparator::BlankLine;
        self.shared_containers = self.containers.len();
        Some(start)
    }

    /// Writes another line of the current block, if `reserve` bytes remain after it.
    fn write_line(&mut self, line: &str, reserve: usize) -> bool {
        let fits = self.text.len() + 1 + self.line_prefix.len() + line.len() + reserve < self.max_bytes;
        if fits {
            self.push_line(line);
        }
        self.is_cut |= !fits;
        fits
    }

    fn push_line(&mut self, line: &str) {
        self.text.push('\n');
        self.text.push_str(if line.is_empty() { self.line_prefix.trim_end() } else { &self.line_prefix });
        self.text.push_str(line);
    }

    /// Returns the text, the starts of its blocks, and whether blocks are missing.
    pub(super) fn finish(mut self) -> (String, Vec<u32>, bool) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        (self.text, self.block_starts, self.is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_block_begin_with_what_its_containers_have() {
        let mut writer = BlockWriter::new(1000);
        writer.write_block("## ", "Title");
        writer.start_quote();
        writer.start_item(Some(9));
        writer.write_block("", "one\ntwo");
        writer.write_code_block("sh", "a\n\nb");
        writer.end_containers(1);
        writer.set_separator(BlockSeparator::Line);
        writer.start_item(Some(10));
        writer.start_item(None);
        writer.write_block("", "three");
        writer.end_containers(0);
        writer.start_quote();
        writer.write_block("", "other");
        let expected =
            "## Title\n\n> 9. one\n>    two\n>\n>    ```sh\n>    a\n>\n>    b\n>    ```\n> 10. - three\n\n> other\n";
        let (text, starts, is_cut) = writer.finish();
        assert_eq!((text.as_str(), is_cut), (expected, false));
        let blocks: Vec<&str> = starts.iter().map(|&start| text[start as usize..].lines().next().unwrap()).collect();
        assert_eq!(blocks, ["## Title", "> 9. one", ">    ```sh", "> 10. - three", "> other"]);
    }

    #[test]
    fn blocks_beyond_the_limit_are_left_out_and_code_is_ended() {
        for max_bytes in 0..600 {
            let mut writer = BlockWriter::new(max_bytes);
            writer.start_quote();
            writer.write_block("", &"line\n".repeat(10));
            writer.write_code_block("", &"a\n".repeat(10));
            let (text, _, is_cut) = writer.finish();
            assert!(text.len() <= max_bytes + 1, "{max_bytes}: {text}");
            assert_eq!(text.matches("```").count() % 2, 0, "{text}");
            assert!(is_cut || max_bytes > 100);
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let mut writer = BlockWriter::new(10_000);
        for _ in 0..1000 {
            writer.start_item(None);
        }
        writer.write_block("", "deep");
        writer.end_containers(999);
        assert_eq!(writer.depth(), MAX_CONTAINERS);
        writer.start_root();
        writer.write_block("", "main");
        let (text, ..) = writer.finish();
        assert!(text.ends_with(" - deep\n\nmain\n"), "{text}");
    }
}
