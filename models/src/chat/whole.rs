//! Lists of a template made whole and measured, where the engine would keep them lazy and unmeasured, and texts paid for
//! where they are read.
//!
//! The engine charges instructions, and texts and items that are made, against the fuel of a render. Three things it does
//! not: `a + b`, `a * 3` and slices of lists are lazy, so that doubling a list sixty times costs nothing until it is walked;
//! lists that hold each other (`[x, x]`, sixty times) are walked as trees by comparisons; and a text of a megabyte is
//! compared, looked up or searched for its last character as often as there are instructions, for one each. So the
//! expressions that make lists get a filter around them, which copies a lazy list and pays for every value in it; what is
//! compared gets one that pays for all of it; and what is indexed, filtered, tested or called gets one that pays for a text.
//! These expressions are found in the engine's syntax tree, and the filters are written into the source: `a + b` becomes
//! `((a + b)|__whole__)`.

use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Macro, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// The filter of what makes a list. No template's author has reason to write such a name.
pub(super) const WHOLE: &str = "__whole__";
/// The filter of what is walked through.
pub(super) const WALKED: &str = "__walked__";
/// The filter of a text that is read.
pub(super) const READ: &str = "__read__";

/// Filters that compare or look at everything in a list.
const WALKING: [&str; 12] = [
    "dictsort",
    "groupby",
    "join",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "select",
    "selectattr",
    "sort",
    "unique",
];
/// Tests that compare with an argument.
const COMPARING: [&str; 19] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "eq",
    "equalto",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "le",
    "lessthan",
    "lt",
    "ne",
    "sameas",
    "containing",
    "startingwith",
];
/// Methods of lists that compare.
const SEARCHING: [&str; 2] = ["count", "index"];
/// Names whose methods are not those of values.
const OWN_NAMES: [&str; 4] = ["caller", "loop", "self", "super"];

/// Longest template, in bytes. The longest that is published has 20 thousand.
const LONGEST: usize = 1 << 18;
/// Most words and signs between two braces: the parser goes down the stack with each.
const TOKENS: usize = 4096;
/// Most `elif`: each is nested in the one before.
const ELIFS: usize = 1000;
/// Deepest lists in lists.
const DEEPEST: usize = 100;
/// Values of a list that cost one unit of fuel, as the bytes of a text do.
const VALUES: u64 = 4;
const BYTES: u64 = 64;
/// Most sums in a row without the filter: lists are lazy in between, and parentheses are nested less.
const SUMS: usize = 16;

/// The source with the filter around everything that makes a list.
///
/// # Errors
/// When the source is malformed, or too large or too deep to be parsed.
pub(super) fn wrap(source: &str, syntax: &SyntaxConfig) -> Result<String, Error> {
    check(source, syntax)?;
    let mut places = Places::default();
    places.statement(&parse(source, super::NAME, syntax.clone())?);
    // What is closed at a place comes before what is opened there, the inner one first.
    places.marks.sort_by_key(|&(at, mark)| (at, mark == Mark::Open));
    let (mut wrapped, mut done) = (String::with_capacity(source.len() + 16 * places.marks.len()), 0);
    for (at, mark) in places.marks {
        wrapped.push_str(&source[done..at]);
        done = at;
        match mark {
            Mark::Open => wrapped.push_str("(("),
            Mark::Close => wrapped.extend([")|", WHOLE, ")"]),
            Mark::CloseHeld => wrapped.extend([")|", WHOLE, "(true))"]),
            Mark::CloseWalked => wrapped.extend([")|", WALKED, ")"]),
            Mark::CloseRead => wrapped.extend([")|", READ, ")"]),
        }
    }
    wrapped.push_str(&source[done..]);
    Ok(wrapped)
}

/// Refuses what the parser cannot go through on the stack of a render.
fn check(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::new(ErrorKind::SyntaxError, what));
    if source.len() > LONGEST {
        return refuse(format!("it has {} bytes, more than {LONGEST}", source.len()));
    }
    let (mut tokens, mut elifs) = (0, 0);
    for token in tokenize(source, false, syntax.clone()) {
        tokens += 1;
        match token?.0 {
            Token::VariableStart | Token::BlockStart => tokens = 0,
            Token::Ident("elif") => elifs += 1,
            Token::Ident(own @ (WHOLE | WALKED | READ)) => return refuse(format!("{own} is not for templates")),
            _ => {}
        }
        if tokens > TOKENS {
            return refuse(format!("more than {TOKENS} words and signs between two braces"));
        }
        if elifs > ELIFS {
            return refuse(format!("more than {ELIFS} `elif`"));
        }
    }
    Ok(())
}

/// What is written into the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    Close,
    /// Closes what a namespace will hold.
    CloseHeld,
    /// Closes what is walked through.
    CloseWalked,
    /// Closes a text that is read, or anything else.
    CloseRead,
}

/// Where the filter opens and closes, in bytes.
#[derive(Default)]
struct Places {
    marks: Vec<(usize, Mark)>,
}

impl Places {
    fn statements(&mut self, statements: &[Stmt]) {
        statements.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Template(it) => self.statements(&it.children),
            Stmt::EmitExpr(it) => self.expression(&it.expr),
            Stmt::ForLoop(it) => {
                self.expression(&it.iter);
                self.expressions(it.filter_expr.iter());
                self.statements(&it.body);
                self.statements(&it.else_body);
            }
            Stmt::IfCond(it) => {
                self.expression(&it.expr);
                self.statements(&it.true_body);
                self.statements(&it.false_body);
            }
            Stmt::WithBlock(it) => {
                self.expressions(it.assignments.iter().map(|(_, value)| value));
                self.statements(&it.body);
            }
            Stmt::Set(it) => {
                self.expression(&it.expr);
                if matches!(it.target, Expr::GetAttr(_)) {
                    self.mark(&it.expr, Mark::CloseHeld);
                }
            }
            Stmt::SetBlock(it) => {
                it.filter.iter().for_each(|filter| self.chain(filter));
                self.statements(&it.body);
            }
            Stmt::AutoEscape(it) => {
                self.expression(&it.enabled);
                self.statements(&it.body);
            }
            Stmt::FilterBlock(it) => {
                self.chain(&it.filter);
                self.statements(&it.body);
            }
            Stmt::Macro(it) => self.declaration(it),
            Stmt::CallBlock(it) => {
                self.call(&it.call);
                self.declaration(&it.macro_decl);
            }
            Stmt::Do(it) => self.call(&it.call),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
        }
    }

    fn declaration(&mut self, it: &Macro) {
        self.expressions(it.defaults.iter());
        self.statements(&it.body);
    }

    /// A call that has to stay one.
    fn call(&mut self, it: &Call) {
        self.expression(&it.expr);
        if let Expr::GetAttr(method) = &it.expr
            && !matches!(&method.expr, Expr::Var(object) if OWN_NAMES.contains(&object.id))
        {
            let is_search = SEARCHING.contains(&method.name);
            self.read(&method.expr, if is_search { Mark::CloseWalked } else { Mark::CloseRead });
            self.arguments(&it.args, Some(Mark::CloseRead));
        } else {
            self.arguments(&it.args, None);
        }
    }

    /// Arguments, and what they are read as.
    fn arguments(&mut self, arguments: &[CallArg], read: Option<Mark>) {
        for argument in arguments {
            let (CallArg::Pos(it) | CallArg::Kwarg(_, it) | CallArg::PosSplat(it) | CallArg::KwargSplat(it)) = argument;
            self.expression(it);
            if let Some(close) = read {
                self.read(it, close);
            }
        }
    }

    /// The filters of a block, which have to stay filters.
    fn chain(&mut self, mut filter: &Expr) {
        while let Expr::Filter(it) = filter {
            self.arguments(&it.args, Some(Mark::CloseRead));
            let Some(before) = &it.expr else { return };
            filter = before;
        }
    }

    fn expressions<'a>(&mut self, expressions: impl Iterator<Item = &'a Expr<'a>>) {
        expressions.for_each(|expression| self.expression(expression));
    }

    fn expression(&mut self, expression: &Expr) {
        let mut makes_list = false;
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(it) => {
                makes_list = true;
                self.expression(&it.expr);
                self.expressions([&it.start, &it.stop, &it.step].into_iter().flatten());
                self.read(&it.expr, Mark::CloseRead);
            }
            Expr::UnaryOp(it) => self.expression(&it.expr),
            Expr::BinOp(it) if matches!(it.op, BinOpKind::Add) => makes_list = self.sum(expression) > 0,
            Expr::BinOp(it) => {
                makes_list = matches!(it.op, BinOpKind::Mul);
                self.expressions([&it.left, &it.right].into_iter());
                if is_comparison(it.op) {
                    self.read(&it.left, Mark::CloseWalked);
                    self.read(&it.right, Mark::CloseWalked);
                }
            }
            Expr::Compare(it) => {
                for operand in std::iter::once(&it.expr).chain(it.ops.iter().map(|op| &op.expr)) {
                    self.expression(operand);
                    self.read(operand, Mark::CloseWalked);
                }
            }
            Expr::IfExpr(it) => {
                self.expressions([&it.test_expr, &it.true_expr].into_iter().chain(&it.false_expr));
            }
            Expr::Filter(it) => {
                makes_list = true;
                let close = if WALKING.contains(&it.name) { Mark::CloseWalked } else { Mark::CloseRead };
                if let Some(input) = &it.expr {
                    self.expression(input);
                    self.read(input, close);
                }
                self.arguments(&it.args, Some(Mark::CloseRead));
            }
            Expr::Test(it) => {
                let close = if COMPARING.contains(&it.name) { Mark::CloseWalked } else { Mark::CloseRead };
                self.expression(&it.expr);
                self.read(&it.expr, close);
                self.arguments(&it.args, Some(close));
            }
            Expr::GetAttr(it) => self.expression(&it.expr),
            Expr::GetItem(it) => {
                for part in [&it.expr, &it.subscript_expr] {
                    self.expression(part);
                    self.read(part, Mark::CloseRead);
                }
            }
            Expr::Call(it) => self.call(it),
            Expr::List(it) => {
                makes_list = true;
                self.expressions(it.items.iter());
            }
            Expr::Tuple(it) => {
                makes_list = true;
                self.expressions(it.items.iter());
            }
            Expr::Map(it) => {
                makes_list = true;
                self.expressions(it.keys.iter().chain(&it.values));
                it.keys.iter().for_each(|key| self.read(key, Mark::CloseRead));
            }
        }
        if makes_list {
            self.mark(expression, Mark::Close);
        }
    }

    /// A sum of sums; how many have no filter around them yet.
    fn sum(&mut self, expression: &Expr) -> usize {
        let Expr::BinOp(it) = expression else { return 0 };
        let before = if matches!(&it.left, Expr::BinOp(left) if matches!(left.op, BinOpKind::Add)) {
            self.sum(&it.left)
        } else {
            self.expression(&it.left);
            0
        };
        self.expression(&it.right);
        if before + 1 < SUMS {
            return before + 1;
        }
        self.mark(expression, Mark::Close);
        0
    }

    /// Puts the filter of what is read around an expression that may be large.
    fn read(&mut self, expression: &Expr, close: Mark) {
        if !matches!(expression, Expr::Const(_)) {
            self.mark(expression, close);
        }
    }

    fn mark(&mut self, expression: &Expr, close: Mark) {
        self.marks.extend([(begin(expression), Mark::Open), (expression.span().end_offset as usize, close)]);
    }
}

/// Whether an operator looks at all of its operands and makes nothing of them.
fn is_comparison(operator: BinOpKind) -> bool {
    use BinOpKind::{Eq, Gt, Gte, In, Lt, Lte, Ne};
    matches!(operator, Eq | Ne | Lt | Lte | Gt | Gte | In)
}

/// Where an expression begins. The parser's spans of filters, and of anything behind an operand, begin at the operator, so the first
/// operand counts. If that is in parentheses, the place is behind the `(`; its `)` then closes one that is inserted, and all still match.
fn begin(expression: &Expr) -> usize {
    let own = expression.span().start_offset as usize;
    let first = match expression {
        Expr::IfExpr(it) => return begin(&it.true_expr),
        Expr::Slice(it) => begin(&it.expr),
        Expr::BinOp(it) => begin(&it.left),
        Expr::Compare(it) => begin(&it.expr),
        Expr::Filter(it) => it.expr.as_ref().map_or(own, begin),
        Expr::Test(it) => begin(&it.expr),
        Expr::GetAttr(it) => begin(&it.expr),
        Expr::GetItem(it) => begin(&it.expr),
        Expr::Call(it) => begin(&it.expr),
        Expr::UnaryOp(it) => begin(&it.expr),
        Expr::Tuple(it) => it.items.first().map_or(own, begin),
        Expr::Var(_) | Expr::Const(_) | Expr::List(_) | Expr::Map(_) => own,
    };
    own.min(first)
}

/// The filter: a lazy list copied, every value in it paid for. What a namespace holds must not be a namespace.
#[allow(clippy::needless_pass_by_value, reason = "a filter gets its value like this")]
pub(super) fn whole(state: &State, value: Value, is_held: Option<bool>) -> Result<Value, Error> {
    let value = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => copied(state, value)?,
        ValueKind::Map => value,
        _ => return Ok(value),
    };
    measure(state, &value, usize::from(is_held.unwrap_or(false)), &mut 0)?;
    Ok(value)
}

fn copied(state: &State, value: Value) -> Result<Value, Error> {
    if value.is_tuple() || value.downcast_object_ref::<Vec<Value>>().is_some() {
        return Ok(value);
    }
    let mut items = Vec::new();
    for item in value.try_iter()? {
        if items.len() % VALUES as usize == 0 {
            state.consume_fuel(1)?;
        }
        items.push(item);
    }
    Ok(Value::from(items))
}

/// The filter of what is walked through: every value in it is paid for, and every byte of its texts.
#[allow(clippy::needless_pass_by_value, reason = "a filter gets its value like this")]
pub(super) fn walked(state: &State, value: Value) -> Result<Value, Error> {
    measure(state, &value, 0, &mut 0)?;
    Ok(value)
}

/// The filter of what is read if it is a text, which is paid for.
#[allow(clippy::needless_pass_by_value, reason = "a filter gets its value like this")]
pub(super) fn read(state: &State, value: Value) -> Result<Value, Error> {
    let bytes = value.as_str().map_or(0, str::len) as u64;
    if bytes >= BYTES {
        state.consume_fuel(bytes / BYTES)?;
    }
    Ok(value)
}

/// Counts the values in a value, and pays for them and their texts; `bytes` are those that nothing was paid for yet.
fn measure(state: &State, value: &Value, depth: usize, bytes: &mut u64) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidOperation, what.to_owned()));
    *bytes += BYTES / VALUES + value.as_str().map_or(0, str::len) as u64;
    if *bytes >= BYTES {
        state.consume_fuel(*bytes / BYTES)?;
        *bytes %= BYTES;
    }
    if depth > DEEPEST {
        return refuse("lists are nested too deeply");
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    // What is set later in a namespace would not be measured, and it could hold itself.
    if object.type_name().ends_with("Namespace") {
        return if depth == 0 { Ok(()) } else { refuse("a namespace inside a namespace, list or dictionary") };
    }
    match value.kind() {
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| measure(state, &item, depth + 1, bytes)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            measure(state, &key, depth + 1, bytes)?;
            measure(state, &value.get_item(&key)?, depth + 1, bytes)
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(source: &str) -> String {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap();
        let text = wrap(source, &syntax).unwrap();
        [(WHOLE, "#"), (WALKED, "@"), (READ, "$")]
            .iter()
            .fold(text, |text, (name, sign)| text.replace(&format!("|{name}"), sign))
    }

    #[test]
    fn what_makes_a_list_gets_the_filter() {
        for (source, expected) in [
            ("{{ a + b }}", "{{ ((a + b)#) }}"),
            ("{{ a + b + c * 2 - d }}", "{{ ((a + b + ((c * 2)#))#) - d }}"),
            ("{{ x.y['z'][::-1] }}", "{{ ((((((x.y)$)['z'])$)[::-1])#) }}"),
            ("{{- [a, [b]] -}}", "{{- (([a, (([b])#)])#) -}}"),
            ("{% set x = a, b %}", "{% set x = ((a, b)#) %}"),
            ("{% set ns.x = b %}", "{% set ns.x = ((b)#(true)) %}"),
            ("{{ {'k': [1]}.items() }}", "{{ (((({'k': (([1])#)})#))$).items() }}"),
            ("{{ -x|abs }}", "{{ ((((-x)$)|abs)#) }}"),
            ("{{ f(a + b, k=[c]) is not none }}", "{{ ((f(((a + b)#), k=(([c])#)))$) is not none }}"),
            ("{% for a, b in c + d if e|f %}{% endfor %}", "{% for a, b in ((c + d)#) if ((((e)$)|f)#) %}{% endfor %}"),
            ("{% filter upper|f(a + b) %}{% endfilter %}", "{% filter upper|f(((((a + b)#))$)) %}{% endfilter %}"),
            ("{% call f(a + b) %}{% endcall %}", "{% call f(((a + b)#)) %}{% endcall %}"),
            (
                "{% macro f(a=[1]) %}{{ a * 2 }}{% endmacro %}",
                "{% macro f(a=(([1])#)) %}{{ ((a * 2)#) }}{% endmacro %}",
            ),
            ("é{{ 'é' + b }}\n{# + #} a + b", "é{{ (('é' + b)#) }}\n{# + #} a + b"),
            // What is compared, looked up, filtered or called may be a long text.
            ("{{ a == 'x' and b in c }}", "{{ ((a)@) == 'x' and ((b)@) in ((c)@) }}"),
            ("{{ a is eq b }}", "{{ ((a)@) is eq ((b)@) }}"),
            ("{{ a|sort }}", "{{ ((((a)@)|sort)#) }}"),
            ("{{ a.count(b) ~ a.strip() }}", "{{ ((a)@).count(((b)$)) ~ ((a)$).strip() }}"),
            ("{{ loop.cycle(a) }}", "{{ loop.cycle(a) }}"),
            // Where parentheses are there already, those that are put in may stand inside them and close outside.
            ("{{ (a + b)[1:].x }}", "{{ (((((((a + b)#))$))[1:])#).x }}"),
            ("{{ (a if b else c)|first }}", "{{ (((((a if b else c)$))|first)#) }}"),
        ] {
            assert_eq!(wrapped(source), expected);
        }
        let long = wrapped(&format!("{{{{ a{} }}}}", " + a".repeat(40)));
        assert_eq!((long.matches("((").count(), long.matches("a)#)").count()), (3, 3), "{long}");
    }

    #[test]
    fn reading_a_long_text_costs_what_it_is_long() {
        /// Enough for the instructions, and for 20 texts.
        const LITTLE: u64 = 40_000;
        let text = |end: &str| Value::from("a".repeat(1 << 17) + end);
        let of =
            |key: &str, value: &Value| Value::from(std::collections::BTreeMap::from([(key.to_owned(), value.clone())]));
        let (s, t) = (text("x"), text("y"));
        let (l, m) = (Value::from(vec![s.clone(), t.clone()]), Value::from(vec![s.clone(), s.clone()]));
        let (d, e) = (of("x", &s), of("x", &t));
        let context = minijinja::context! { s, t, l, m, d, e };
        let render = |body: &str| {
            let source = format!("{{% for i in range(1000) %}}{{% set y = {body} %}}{{% endfor %}}");
            let mut environment = crate::chat::environment(&source).unwrap();
            environment.set_fuel(Some(LITTLE));
            environment.get_template(crate::chat::NAME).unwrap().render(&context)
        };
        assert_eq!(render("i + 1").unwrap(), "");
        for body in [
            "s == t",
            "s < t",
            "s in l",
            "t in s",
            "l == m",
            "l < m",
            "d == e",
            "s[-1]",
            "s[5]",
            "s[:3]",
            "d[s]",
            "d.get(s)",
            "{s: 1}",
            "d|attr(s)",
            "s|first",
            "s|last",
            "s|length",
            "s|int(0)",
            "s|lower",
            "s|trim",
            "l|sort",
            "l|unique",
            "l|min",
            "l|select('eq', t)|list",
            "s is lower",
            "s is eq t",
            "t is in l",
            "s.isdigit()",
            "s.title()",
            "s.find('b')",
            "s.startswith(t)",
            "l.count(t)",
            "s ~ t",
            "s + t",
            "l|join",
            "[s, t]",
            "s.strip()",
        ] {
            let error = render(body).expect_err(body);
            assert_eq!(error.kind(), ErrorKind::OutOfFuel, "{body}: {error}");
        }
    }

    #[test]
    fn what_the_parser_cannot_take_is_refused() {
        let syntax = SyntaxConfig::builder().build().unwrap();
        for (source, problem) in [
            (" ".repeat(LONGEST + 1), "it has 262145 bytes, more than 262144"),
            (format!("{{{{ {}1 }}}}", "not ".repeat(TOKENS)), "more than 4096 words and signs between two braces"),
            (format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(1001)), "more than 1000 `elif`"),
            ("{{ a|__whole__ }}".to_owned(), "__whole__ is not for templates"),
            ("{{ a|__read__ }}".to_owned(), "__read__ is not for templates"),
        ] {
            let message = wrap(&source, &syntax).unwrap_err().to_string();
            assert!(message.contains(problem), "{message}");
        }
    }
}
