//! Lists of a template made whole and measured, where the engine would keep them lazy and unmeasured.
//!
//! The engine charges instructions, texts and items against the fuel of a render. Two things it does not: `a + b`, `a * 3`
//! and slices of lists are lazy, so that doubling a list sixty times costs nothing until it is walked; and lists that hold
//! each other (`[x, x]`, sixty times) are walked as trees by comparisons. So the expressions that make lists get a filter
//! around them, which copies a lazy list and pays for every value in it. They are found in the engine's syntax tree, and the
//! filter is written into the source: `a + b` becomes `((a + b)|whole)`.

use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Macro, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// The filter's name, which no template's author has reason to write.
pub(super) const FILTER: &str = "__whole__";

/// Longest template, in bytes. The longest that is published has 20 thousand.
const LONGEST: usize = 1 << 18;
/// Most words and signs between two braces: the parser goes down the stack with each.
const TOKENS: usize = 4096;
/// Most `elif`: each is nested in the one before.
const ELIFS: usize = 1000;
/// Deepest lists in lists.
const DEEPEST: usize = 100;
/// Values of a list that cost one unit of fuel.
const VALUES: u64 = 4;
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
            Mark::Close => wrapped.extend([")|", FILTER, ")"]),
            Mark::CloseHeld => wrapped.extend([")|", FILTER, "(true))"]),
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
            Token::Ident(FILTER) => return refuse(format!("{FILTER} is not for templates")),
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
        self.arguments(&it.args);
    }

    fn arguments(&mut self, arguments: &[CallArg]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(it) | CallArg::Kwarg(_, it) | CallArg::PosSplat(it) | CallArg::KwargSplat(it) => {
                    self.expression(it);
                }
            }
        }
    }

    /// The filters of a block, which have to stay filters.
    fn chain(&mut self, mut filter: &Expr) {
        while let Expr::Filter(it) = filter {
            self.arguments(&it.args);
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
            }
            Expr::UnaryOp(it) => self.expression(&it.expr),
            Expr::BinOp(it) if matches!(it.op, BinOpKind::Add) => makes_list = self.sum(expression) > 0,
            Expr::BinOp(it) => {
                makes_list = matches!(it.op, BinOpKind::Mul);
                self.expressions([&it.left, &it.right].into_iter());
            }
            Expr::Compare(it) => {
                self.expression(&it.expr);
                self.expressions(it.ops.iter().map(|op| &op.expr));
            }
            Expr::IfExpr(it) => {
                self.expressions([&it.test_expr, &it.true_expr].into_iter().chain(&it.false_expr));
            }
            Expr::Filter(it) => {
                makes_list = true;
                self.expressions(it.expr.iter());
                self.arguments(&it.args);
            }
            Expr::Test(it) => {
                self.expression(&it.expr);
                self.arguments(&it.args);
            }
            Expr::GetAttr(it) => self.expression(&it.expr),
            Expr::GetItem(it) => self.expressions([&it.expr, &it.subscript_expr].into_iter()),
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

    fn mark(&mut self, expression: &Expr, close: Mark) {
        self.marks.extend([(begin(expression), Mark::Open), (expression.span().end_offset as usize, close)]);
    }
}

/// Where an expression begins. The parser's spans of filters and of what stands behind an operand begin at the sign. A
/// parenthesis that was skipped by beginning behind it closes what is opened there: one is as good as another.
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

/// Counts the values in a value, and pays for them.
fn measure(state: &State, value: &Value, depth: usize, values: &mut u64) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidOperation, what.to_owned()));
    *values += 1;
    if *values == VALUES {
        *values = 0;
        state.consume_fuel(1)?;
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
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| measure(state, &item, depth + 1, values)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            measure(state, &key, depth + 1, values)?;
            measure(state, &value.get_item(&key)?, depth + 1, values)
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(source: &str) -> String {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap();
        wrap(source, &syntax).unwrap().replace(&format!("|{FILTER}"), "#")
    }

    #[test]
    fn what_makes_a_list_gets_the_filter() {
        for (source, expected) in [
            ("{{ a + b }}", "{{ ((a + b)#) }}"),
            ("{{ a + b + c * 2 - d }}", "{{ ((a + b + ((c * 2)#))#) - d }}"),
            ("{{ x.y['z'][::-1] }}", "{{ ((x.y['z'][::-1])#) }}"),
            ("{{- [a, [b]] -}}", "{{- (([a, (([b])#)])#) -}}"),
            ("{% set x = a, b %}", "{% set x = ((a, b)#) %}"),
            ("{% set ns.x = b %}", "{% set ns.x = ((b)#(true)) %}"),
            ("{{ {'k': [1]}.items() }}", "{{ (({'k': (([1])#)})#).items() }}"),
            ("{{ -x|abs }}", "{{ ((-x|abs)#) }}"),
            ("{{ f(a + b, k=[c]) is not none }}", "{{ f(((a + b)#), k=(([c])#)) is not none }}"),
            ("{% for a, b in c + d if e|f %}{% endfor %}", "{% for a, b in ((c + d)#) if ((e|f)#) %}{% endfor %}"),
            ("{% filter upper|f(a + b) %}{% endfilter %}", "{% filter upper|f(((a + b)#)) %}{% endfilter %}"),
            ("{% call f(a + b) %}{% endcall %}", "{% call f(((a + b)#)) %}{% endcall %}"),
            (
                "{% macro f(a=[1]) %}{{ a * 2 }}{% endmacro %}",
                "{% macro f(a=(([1])#)) %}{{ ((a * 2)#) }}{% endmacro %}",
            ),
            ("é{{ 'é' + b }}\n{# + #} a + b", "é{{ (('é' + b)#) }}\n{# + #} a + b"),
            // Where parentheses are there already, those that are put in may stand inside them and close outside.
            ("{{ (a + b)[1:].x }}", "{{ (((((a + b)#))[1:])#).x }}"),
            ("{{ (a if b else c)|first }}", "{{ (((a if b else c)|first)#) }}"),
        ] {
            assert_eq!(wrapped(source), expected);
        }
        let long = wrapped(&format!("{{{{ a{} }}}}", " + a".repeat(40)));
        assert_eq!((long.matches("((").count(), long.matches("a)#)").count()), (3, 3), "{long}");
    }

    #[test]
    fn what_the_parser_cannot_take_is_refused() {
        let syntax = SyntaxConfig::builder().build().unwrap();
        for (source, problem) in [
            (" ".repeat(LONGEST + 1), "it has 262145 bytes, more than 262144"),
            (format!("{{{{ {}1 }}}}", "not ".repeat(TOKENS)), "more than 4096 words and signs between two braces"),
            (format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(1001)), "more than 1000 `elif`"),
            ("{{ a|__whole__ }}".to_owned(), "__whole__ is not for templates"),
        ] {
            let message = wrap(&source, &syntax).unwrap_err().to_string();
            assert!(message.contains(problem), "{message}");
        }
    }
}
