//! Asks for memory from many places, through collections and closures that are called back, while a
//! panic is caught and in another thread, keeps all of it and ends.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Display;
use std::hint::black_box;
use std::rc::Rc;
use std::{mem, panic, thread};

fn keep<T>(value: T) {
    mem::forget(black_box(value));
}

struct Node {
    name: String,
    below: Vec<Node>,
}

fn grown(depth: u32, name: &str) -> Node {
    let mut node = Node { name: format!("{name} at {depth}"), below: Vec::new() };
    if depth > 0 {
        node.below.push(grown(depth - 1, &node.name));
        node.below.push(grown(depth - 1, "right"));
    }
    node
}

trait Shape {
    fn corners(&self, n: usize) -> Vec<f64>;
}

struct Polygon;
struct Star(Rc<dyn Shape>);

impl Shape for Polygon {
    fn corners(&self, n: usize) -> Vec<f64> {
        vec![0.5; n]
    }
}

impl Shape for Star {
    fn corners(&self, n: usize) -> Vec<f64> {
        let mut all = self.0.corners(n);
        all.extend((0..n).map(|i| i as f64));
        all
    }
}

fn shapes() {
    let polygon: Rc<dyn Shape> = Rc::new(Polygon);
    let all: Vec<Box<dyn Shape>> = vec![Box::new(Star(Rc::clone(&polygon))), Box::new(Polygon)];
    for shape in &all {
        keep(shape.corners(black_box(5)));
    }
    keep(all);
}

fn collections() {
    let mut numbers: Vec<u32> = (0..60).rev().collect();
    let mut seen = BTreeMap::new();
    numbers.sort_by(|one, other| {
        seen.insert(*one, one.to_string());
        one.cmp(other)
    });
    let counts: HashMap<String, u32> = numbers.iter().map(|n| (n.to_string(), *n)).collect();
    let words: VecDeque<String> = "some words to be kept".split(' ').map(str::to_owned).collect();
    keep((seen, counts, words));
}

fn shown(value: &dyn Display) -> String {
    format!("{value:>40}")
}

/// Runs while the frame that it is in is left for a panic.
struct Leaves(u32);

impl Drop for Leaves {
    fn drop(&mut self) {
        keep(shown(&self.0));
    }
}

fn fails(depth: u32) {
    let _leaves = Leaves(depth);
    if depth == 0 {
        panic::panic_any(shown(&"the reason"));
    }
    fails(black_box(depth - 1));
}

fn panics() {
    keep(panic::catch_unwind(|| fails(black_box(4))));
}

fn everything() {
    keep(grown(black_box(4), "root"));
    shapes();
    collections();
    panics();
}

fn main() {
    panic::set_hook(Box::new(|told| keep(told.location().map(ToString::to_string))));
    everything();
    thread::spawn(everything).join().expect("it catches its panic");
}
