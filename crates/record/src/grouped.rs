//! Messages of several agents, gathered into one line per problem.

use std::fmt::Display;

/// Maximum number of agents that a line names.
const MAX_NAMED: usize = 3;

/// Groups agents whose messages differ only in their numbers.
pub fn grouped<T: Display>(
    messages: impl IntoIterator<Item = (String, T)>,
) -> Vec<(Vec<String>, Vec<T>)> {
    let shape = |message: &T| MessageShape::of(&message.to_string()).text;
    let mut groups: Vec<(Vec<String>, Vec<T>)> = Vec::new();
    for (agent, message) in messages {
        let own = shape(&message);
        match groups
            .iter_mut()
            .find(|(_, others)| shape(&others[0]) == own)
        {
            Some((agents, messages)) => {
                agents.push(agent);
                messages.push(message);
            }
            None => groups.push((vec![agent], vec![message])),
        }
    }
    groups
}

/// Joins messages that differ only in their numbers. A number that differs between messages becomes
/// a range.
pub fn merged(messages: impl IntoIterator<Item = impl Display>) -> String {
    let shapes = messages.into_iter();
    let shapes = shapes.map(|message| MessageShape::of(&message.to_string()));
    let merged = shapes.reduce(MessageShape::merged);
    merged.map_or_else(String::new, |all| all.show())
}

/// Returns text such as `agents a and b` or `agents a, b, c and 61 more`. `count` is the total
/// number of agents.
#[must_use]
pub fn show_agents(agents: &[String], count: usize) -> String {
    match agents {
        [one] => format!("agent {one}"),
        all if all.len() == count => format!("all {count} agents"),
        [first @ .., last] if agents.len() <= MAX_NAMED + 1 => {
            format!("agents {} and {last}", first.join(", "))
        }
        many => {
            let (named, rest) = many.split_at(MAX_NAMED);
            format!("agents {} and {} more", named.join(", "), rest.len())
        }
    }
}

/// A message, split at its numbers.
struct MessageShape {
    /// The text before each number, and the text after the last number.
    text: Vec<String>,
    /// The smallest and the largest value of each number, as written.
    numbers: Vec<(String, String)>,
}

impl MessageShape {
    fn of(message: &str) -> Self {
        let (mut text, mut numbers) = (vec![String::new()], Vec::new());
        for part in message.split_inclusive([' ', '(']) {
            let length = number_length(part);
            let (number, rest) = part.split_at(length);
            if length > 0 {
                numbers.push((number.to_owned(), number.to_owned()));
                text.push(String::new());
            }
            if let Some(text) = text.last_mut() {
                text.push_str(rest);
            }
        }
        MessageShape { text, numbers }
    }

    /// Adds the numbers of a message with the same text.
    fn merged(mut self, other: Self) -> Self {
        for ((least, largest), (low, high)) in self.numbers.iter_mut().zip(other.numbers) {
            if value(&low) < value(least) {
                *least = low;
            }
            if value(&high) > value(largest) {
                *largest = high;
            }
        }
        self
    }

    fn show(&self) -> String {
        let mut message = String::new();
        for (i, text) in self.text.iter().enumerate() {
            message.push_str(text);
            match self.numbers.get(i) {
                Some((least, largest)) if value(least) == value(largest) => {
                    message.push_str(least);
                }
                Some((least, largest)) => message.push_str(&format!("{least} to {largest}")),
                None => {}
            }
        }
        message
    }
}

/// Returns the length of the number at the start of a word, such as `1,234` or `2.5`. Returns 0 for
/// other words, such as addresses.
fn number_length(word: &str) -> usize {
    let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    match value(number) {
        Some(_) => number.len(),
        None => 0,
    }
}

fn value(number: &str) -> Option<f64> {
    let is_part = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let number = Some(number).filter(|number| number.chars().all(is_part))?;
    number.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(messages: &[(&str, &str)], count: usize) -> Vec<String> {
        let owned = |(agent, message): &(&str, &str)| ((*agent).to_owned(), (*message).to_owned());
        let groups = grouped(messages.iter().map(owned)).into_iter();
        let line = |(agents, messages): (Vec<String>, Vec<String>)| {
            format!("{}: {}", show_agents(&agents, count), merged(messages))
        };
        groups.map(line).collect()
    }

    #[test]
    fn joins_messages_that_differ_in_numbers() {
        let messages = [
            (
                "a",
                "1 thread, 98.5 % on a CPU; use -t 2, or 1,000 connections.",
            ),
            ("b", "the clock is off"),
            ("c", "1 thread, 9 % on a CPU; use -t 2, or 900 connections."),
            (
                "d",
                "1 thread, 100 % on a CPU; use -t 2, or 1,000 connections.",
            ),
        ];
        assert_eq!(
            lines(&messages, 5),
            [
                "agents a, c and d: 1 thread, 9 to 100 % on a CPU; use -t 2, or 900 to 1,000 \
                 connections.",
                "agent b: the clock is off",
            ]
        );
    }

    #[test]
    fn names_a_few_agents() {
        let named = |n: usize, count| {
            let agents: Vec<String> = (0..n).map(|i| format!("h{i}")).collect();
            show_agents(&agents, count)
        };
        assert_eq!(named(1, 1), "agent h0");
        assert_eq!(named(2, 2), "all 2 agents");
        assert_eq!(named(2, 3), "agents h0 and h1");
        assert_eq!(named(4, 5), "agents h0, h1, h2 and h3");
        assert_eq!(named(5, 64), "agents h0, h1, h2 and 2 more");
        assert_eq!(named(64, 64), "all 64 agents");
    }

    #[test]
    fn keeps_names_and_addresses() {
        let text = "at 127.0.0.1:80 and 127.0.0.1 on node-1";
        let other = "at 127.0.0.1:80 and 127.0.0.1 on node-2";
        assert_eq!(
            lines(&[("a", text), ("b", text), ("c", other)], 3),
            [
                format!("agents a and b: {text}"),
                format!("agent c: {other}")
            ]
        );
    }
}
