//! Expressions made by chance, the same ones every time.
//!
//! Most of them are of a type and evaluate to something; some have a letter too many or too few.

/// Chance: a generator by Marsaglia and Vigna, xorshift64*.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).expect("31 bits fit") % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// What an expression of a type is made of, see `grammar.txt`.
struct Type {
    letter: char,
    leaves: Vec<&'static str>,
    nodes: Vec<&'static str>,
}

/// Types in the order of their letters in the file.
fn types() -> Vec<Type> {
    let mut types: Vec<Type> = Vec::new();
    for line in include_str!("grammar.txt").lines() {
        let mut parts = line.splitn(3, ' ');
        let (Some(letter), Some(kind), Some(text)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Some(letter) = letter.chars().next().filter(|letter| *letter != '#') else {
            continue;
        };
        if types.last().is_none_or(|last| last.letter != letter) {
            types.push(Type {
                letter,
                leaves: Vec::new(),
                nodes: Vec::new(),
            });
        }
        let last = types.last_mut().expect("it was just added");
        match kind {
            "=" => last.leaves.push(text),
            _ => last.nodes.push(text),
        }
    }
    types
}

/// What one letter too many may be.
const LETTERS: [&str; 30] = [
    "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "!", "&", "|", "=", "<", ">", "+", "-", "*",
    "/", "%", "'", "\"", "0", "1", "a", "u", " in ", "\\", "\n",
];

/// Makes expressions.
pub(crate) struct Grammar {
    types: Vec<Type>,
    chance: Chance,
    /// Names that macros have given, with the letter of their type.
    names: Vec<(char, String)>,
    given: usize,
}

impl Grammar {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            types: types(),
            chance: Chance::new(seed),
            names: Vec::new(),
            given: 0,
        }
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.chance.below(bound)
    }

    /// An expression of any type, at most so deep.
    pub(crate) fn expression(&mut self, depth: usize) -> String {
        // The value of an optional cannot be looked at from outside.
        let shown = |of: &&Type| of.letter != 'o' && !of.nodes.is_empty();
        let letters: Vec<char> = self
            .types
            .iter()
            .filter(shown)
            .map(|of| of.letter)
            .collect();
        let letter = letters[self.chance.below(letters.len())];
        self.given = 0;
        let expression = self.part(letter, depth);
        if self.chance.below(8) == 0 {
            return self.misspelt(&expression);
        }
        expression
    }

    fn part(&mut self, letter: char, depth: usize) -> String {
        let named: Vec<_> = self.names.iter().filter(|(of, _)| *of == letter).collect();
        if !named.is_empty() && self.chance.below(3) == 0 {
            return named[self.chance.below(named.len())].1.clone();
        }
        let of = self.types.iter().find(|of| of.letter == letter);
        let of = of.expect("each letter is a type's");
        if depth == 0 || of.nodes.is_empty() {
            return self.chance.of(&of.leaves).to_owned();
        }
        let node = self.chance.of(&of.nodes);
        let expression = self.filled(node, depth - 1);
        // Without, the order of operators decides.
        if self.chance.below(4) == 0 {
            expression
        } else {
            format!("({expression})")
        }
    }

    fn filled(&mut self, node: &str, depth: usize) -> String {
        let known = self.names.len();
        let mut made = String::new();
        let mut left = node;
        while let Some(letter) = left.chars().next() {
            let (hole, after) = hole(left);
            match hole {
                Some(Hole::Name(of)) => {
                    self.given += 1;
                    let name = format!("v{}", self.given);
                    made.push_str(&name);
                    self.names.push((of, name));
                }
                Some(Hole::Part(of)) => {
                    let depth = depth - depth.min(self.chance.below(2));
                    made.push_str(&self.part(of, depth));
                }
                None => made.push(letter),
            }
            left = after;
        }
        self.names.truncate(known);
        made
    }

    /// With a letter more, one less, or another one.
    fn misspelt(&mut self, expression: &str) -> String {
        let mut letters: Vec<String> = expression.chars().map(String::from).collect();
        let at = self.chance.below(letters.len());
        let other = self.chance.of(&LETTERS).to_owned();
        match self.chance.below(3) {
            0 => drop(letters.remove(at)),
            1 => letters.insert(at, other),
            _ => letters[at] = other,
        }
        letters.concat()
    }
}

enum Hole {
    /// `@i`
    Name(char),
    /// `{i}`
    Part(char),
}

/// What stands first in a line, and what follows it.
fn hole(line: &str) -> (Option<Hole>, &str) {
    let mut letters = line.chars();
    match (letters.next(), letters.next(), letters.next()) {
        (Some('@'), Some(of), _) => (Some(Hole::Name(of)), &line[2..]),
        (Some('{'), Some(of), Some('}')) if of.is_ascii_lowercase() => {
            (Some(Hole::Part(of)), &line[3..])
        }
        (letter, ..) => (None, &line[letter.map_or(0, char::len_utf8)..]),
    }
}
