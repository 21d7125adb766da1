use proptest::prelude::*;

use super::*;

const INSERT: &str = "app::detail::Cache<std::__cxx11::basic_string<char, std::char_traits<char>, \
    std::allocator<char> >, std::vector<int, std::allocator<int> > >::insert(std::__cxx11::\
    basic_string<char, std::char_traits<char>, std::allocator<char> > const&)";

/// What is left of the name in ever fewer columns, down to its last component.
fn forms(text: &str, last: &str) -> Vec<String> {
    let mut forms: Vec<String> = Vec::new();
    for width in (widths::of(last)..widths::of(text)).rev() {
        let form = name(text, width);
        if forms.last() != Some(&form) {
            forms.push(form);
        }
    }
    forms
}

#[test]
fn parameters_go_first_then_arguments_then_namespaces() {
    assert_eq!(
        forms(INSERT, "insert"),
        [
            "app::detail::Cache<std::string, std::vector<int, std::allocator<int> > >::insert(std::string const&)",
            "app::detail::Cache<std::string, std::vector<int, std::allocator<int> > >::insert",
            "app::detail::Cache<std::string, std::vector<...> >::insert",
            "app::detail::Cache<...>::insert",
            "...::Cache<...>::insert",
            "Cache<...>::insert",
            "...::insert",
            "insert",
        ]
    );
    assert_eq!(
        forms("void node::(anonymous namespace)::Compress<node::Zlib>::alloc(void*, int)", "alloc"),
        [
            "node::(anonymous namespace)::Compress<node::Zlib>::alloc",
            "node::(anonymous namespace)::Compress<...>::alloc",
            "...::(anonymous namespace)::Compress<...>::alloc",
            "...::Compress<...>::alloc",
            "Compress<...>::alloc",
            "...::alloc",
            "alloc",
        ]
    );
}

#[test]
fn a_name_that_fits_is_left_as_it_is() {
    assert_eq!(name(INSERT, INSERT.len()), INSERT);
    assert_eq!(name("", 0), "");
}

#[test]
fn a_closure_keeps_the_function_that_it_is_in() {
    assert_eq!(
        forms(
            "a::B::f(int)::{lambda(int)#1}::operator()(int) const [clone .cold]",
            "f::{lambda()#1}::operator()"
        ),
        [
            "a::B::f::{lambda()#1}::operator()",
            "B::f::{lambda()#1}::operator()",
            "f::{lambda()#1}::operator()",
        ]
    );
    assert_eq!(
        forms("mycrate::store::open::{{closure}}", "open::{{closure}}"),
        [
            "...::store::open::{{closure}}",
            "store::open::{{closure}}",
            "...::open::{{closure}}",
            "open::{{closure}}",
        ]
    );
}

#[test]
fn a_trait_s_function_keeps_its_type() {
    assert_eq!(
        forms("<app::store::Session<app::Key> as core::clone::Clone>::clone", "clone"),
        [
            "<app::store::Session<...> as core::clone::Clone>::clone",
            "<Session<...> as Clone>::clone",
            "Session<...>::clone",
            "...::clone",
            "clone",
        ]
    );
}

#[test]
fn operators_are_names() {
    for (text, last) in [
        ("bool ns::operator< <char>(ns::Foo<char> const&)", "operator< <...>"),
        ("ns::operator<<(std::ostream&, ns::Foo const&)", "operator<<"),
        ("ns::Foo::operator->() const", "operator->"),
        ("ns::Foo::operator->*(int) const", "operator->*"),
        ("ns::Foo::operator()(ns::Long, ns::Long) const", "Foo::operator()"),
        ("ns::Foo::operator[](int)", "operator[]"),
        ("ns::Foo::operator<=>(ns::Foo const&) const", "operator<=>"),
        ("ns::Foo::operator std::vector<int>() const", "operator std::vector<int>"),
        ("ns::Foo::operator new[](unsigned long)", "operator new[]"),
    ] {
        assert_eq!(name(text, last.len()), last, "{text}");
    }
}

#[test]
fn names_of_other_languages_have_parts_too() {
    assert_eq!(
        forms("github.com/user/repo/pkg.(*Table[go.shape.int]).Put.func1", "Put.func1"),
        [
            ".../user/repo/pkg.(*Table[go.shape.int]).Put.func1",
            ".../repo/pkg.(*Table[go.shape.int]).Put.func1",
            ".../pkg.(*Table[go.shape.int]).Put.func1",
            "...(*Table[go.shape.int]).Put.func1",
            "(*Table[go.shape.int]).Put.func1",
            "...Put.func1",
            "Put.func1",
        ]
    );
    assert_eq!(
        forms("java.util.HashMap$Node[] java.util.HashMap.resize(int)", "resize"),
        [
            "java.util.HashMap.resize",
            "...util.HashMap.resize",
            "...HashMap.resize",
            "HashMap.resize",
            "...resize",
            "resize",
        ]
    );
    assert_eq!(name("Lcom/example/Server;::handleRequest", 20), "...::handleRequest");
    assert_eq!(name("/usr/lib/x86_64-linux-gnu/libfoo.so.1", 20), ".../libfoo.so.1");
    assert_eq!(name("Service.handle.<locals>.inner", 14), "<locals>.inner");
}

#[test]
fn what_is_no_path_is_cut_in_its_middle() {
    for (text, cut) in [
        ("libruby-3.1.so.3.1+0xd8483", "libruby-...0xd8483"),
        ("a_function_of_c_without_parts", "a_functi...t_parts"),
        ("ns::unbalanced<int::function", "ns::unba...unction"),
        ("closure (1) of a script of mine", "closure ...of mine"),
    ] {
        assert_eq!(name(text, 18), cut);
    }
}

#[test]
fn pieces_of_a_function_and_marks_stay_with_its_name() {
    assert_eq!(name("app_module_load.constprop.0", 20), "app_modul...stprop.0");
    assert_eq!(name("app::Module::load(int) (sampled)", 24), "Module::load (sampled)");
    assert_eq!(name("app::Module::load(int) (inlined)", 14), "load (inlined)");
}

#[test]
fn the_whole_path_is_kept_or_nothing() {
    assert_eq!(path(INSERT, 40).as_deref(), Some("app::detail::Cache<...>::insert"));
    assert_eq!(path(INSERT, 30), None);
}

#[test]
fn a_name_without_end_takes_no_time_without_end() {
    let long = "a::".repeat(5000) + "f";
    assert_eq!(name(&long, 10), "...::a::f");
    let deep = "a<".repeat(5000) + &">".repeat(5000);
    assert_eq!(name(&deep, 10), "a<a<...>>");
}

/// Names of all languages, and what only looks like one.
fn texts() -> impl Strategy<Value = String> {
    let part = "[a-z<>(){}\\[\\]:./ *&,=>-]{0,3}|operator|operator\\(\\)|::|<T as U>|\
        \\{\\{closure\\}\\}|\\(anonymous namespace\\)|std::__cxx11::|函|0\u{fe0f}| \\(sampled\\)";
    let parts = proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat());
    prop_oneof![parts, "\\PC{0,60}"]
}

proptest! {
    #[test]
    fn never_wider_than_asked(text in texts(), width in 0_usize..50) {
        prop_assert!(widths::of(&name(&text, width)) <= width);
        if let Some(path) = path(&text, width) {
            prop_assert!(widths::of(&path) <= width);
        }
    }

    #[test]
    fn the_last_component_is_kept_when_it_fits(
        scope in "([a-z]{1,6}(<[a-z]{1,9}(, [a-z]<[a-z]{1,5}> )?>)?::){0,4}",
        last in "[a-z]{1,12}|operator<|operator\\(\\)|operator->|operator<<",
        parameters in "\\(([a-z]{1,9}::[a-z]{1,9}(, [a-z]<[a-z, ]{1,5}>)?)?\\)( const)?",
        room in 0_usize..40,
    ) {
        let cut = name(&format!("{scope}{last}{parameters}"), last.len() + room);
        if last != "operator()" {
            prop_assert!(cut.contains(&last), "{cut}");
        }
    }
}
