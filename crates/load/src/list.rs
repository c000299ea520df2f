//! Doubly linked lists of items in a slice. The items store the links, so each list operation takes
//! constant time and allocates no memory.

use std::marker::PhantomData;

use crate::clock::Ns;

/// An item that a list can contain.
pub trait ListItem {
    /// Returns the item's position in its list.
    fn link(&mut self) -> &mut Link;

    /// Returns the item's deadline, in ns on the worker's clock.
    fn deadline(&self) -> Ns;
}

/// Position in a list. An item is in at most one list.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    before: u32,
    after: u32,
}

const NONE: u32 = u32::MAX;

impl Default for Link {
    fn default() -> Self {
        Link {
            before: NONE,
            after: NONE,
        }
    }
}

/// A doubly linked list. Items are referred to by their index in the slice of all items, which
/// every operation receives as an argument.
#[derive(Debug, Default)]
pub struct List<T> {
    /// Ends of the list: `after` is the first item, and `before` is the last item.
    ends: Link,
    items: PhantomData<T>,
}

impl<T: ListItem> List<T> {
    /// Returns the first item.
    pub fn front(&self) -> Option<u32> {
        (self.ends.after != NONE).then_some(self.ends.after)
    }

    /// Returns the deadline of the first item; `Ns::MAX` if the list is empty.
    #[inline]
    pub fn first_deadline(&self, all: &[T]) -> Ns {
        self.front()
            .map_or(Ns::MAX, |first| all[first as usize].deadline())
    }

    /// Returns the first item, if its deadline has passed.
    #[inline]
    pub fn overdue(&self, all: &[T], now: Ns) -> Option<u32> {
        self.front()
            .filter(|first| all[*first as usize].deadline() <= now)
    }

    /// Appends an item, which must not be in any list.
    pub fn push_back(&mut self, all: &mut [T], index: u32) {
        *all[index as usize].link() = Link {
            before: self.ends.before,
            after: NONE,
        };
        match self.ends.before {
            NONE => self.ends.after = index,
            back => all[back as usize].link().after = index,
        }
        self.ends.before = index;
    }

    /// Prepends an item, which must not be in any list.
    pub fn push_front(&mut self, all: &mut [T], index: u32) {
        *all[index as usize].link() = Link {
            before: NONE,
            after: self.ends.after,
        };
        match self.ends.after {
            NONE => self.ends.before = index,
            front => all[front as usize].link().before = index,
        }
        self.ends.after = index;
    }

    /// Removes an item from this list.
    pub fn remove(&mut self, all: &mut [T], index: u32) {
        let Link { before, after } = *all[index as usize].link();
        match before {
            NONE => self.ends.after = after,
            b => all[b as usize].link().after = after,
        }
        match after {
            NONE => self.ends.before = before,
            a => all[a as usize].link().before = before,
        }
        *all[index as usize].link() = Link::default();
    }
}

#[cfg(test)]
impl<T: ListItem> List<T> {
    /// Returns all items from front to back, and checks that the backward links match.
    pub fn members(&self, all: &mut [T]) -> Vec<u32> {
        let (mut members, mut at) = (Vec::new(), self.ends.after);
        while at != NONE {
            assert!(members.len() < all.len(), "a cycle");
            let link = *all[at as usize].link();
            assert_eq!(link.before, members.last().copied().unwrap_or(NONE));
            members.push(at);
            at = link.after;
        }
        assert_eq!(self.ends.before, members.last().copied().unwrap_or(NONE));
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ConnectionSlot;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in proptest::collection::vec((0u8..3, 0u32..8), 0..100)) {
            let mut items: Vec<_> = (0..8).map(|_| ConnectionSlot::default()).collect();
            let (mut list, mut model) = (List::default(), VecDeque::new());
            for (step, index) in steps {
                match (step, model.iter().position(|i| *i == index)) {
                    (0, None) => { list.push_back(&mut items, index); model.push_back(index); }
                    (1, None) => { list.push_front(&mut items, index); model.push_front(index); }
                    (2, Some(at)) => { list.remove(&mut items, index); model.remove(at); }
                    _ => {}
                }
                prop_assert_eq!(list.front(), model.front().copied());
            }
            while let Some(index) = model.pop_front() {
                prop_assert_eq!(list.front(), Some(index));
                list.remove(&mut items, index);
            }
            prop_assert_eq!(list.front(), None);
        }
    }
}
