//! Enums whose values have a fixed name in records and messages.

/// Defines an enum with a fixed name for each value.
macro_rules! named {
    ($(
        $(#[$about:meta])*
        $type:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)* }
    )*) => { $(
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $type {
            $($(#[$doc])* #[serde(rename = $name)] $value,)*
        }

        impl $type {
            /// All values, in definition order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$value),*];

            /// Returns the name used in records and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }

            /// Returns the value with the given name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    )* };
}

pub(crate) use named;

#[cfg(test)]
mod tests {
    use crate::ComparedMetric;
    use crate::cause::Cause;

    #[test]
    fn serializes_a_value_as_its_name() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
            assert_eq!(Cause::from_name(cause.name()), Some(cause));
        }
        assert_eq!(ComparedMetric::from_name("p999"), None);
    }
}
