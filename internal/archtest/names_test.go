package archtest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var updateNames = flag.Bool("update-names", false, "write testdata/names.txt again")

// replacements maps home-made words to the field's. Names of identifiers, packages and
// files consist of words; those of REST, the CLI of 1.x and stored keys keep theirs.
var replacements = map[string]string{
	"absence": "failure detector", "admit": "enrolment, join", "admits": "enrolment, join",
	"anchor": "trust bundle", "answerer": "L2 announcer", "answering": "L2 announcer",
	"aside": "audit rule, no-op program", "asides": "audit rules", "bar": "ban, per-source limit", "bars": "bans",
	"claim": "host lease, allocation, lock", "claims": "host leases, allocations",
	"concern": "interest, subscription", "concerns": "interests, subscriptions",
	"crowds": "per-source limit", "custody": "pending operations", "door": "enrolment server",
	"early": "pending", "emptied": "cleared", "ends": "expiry", "epoch": "generation, version",
	"face": "service frontend", "faces": "service frontends", "fit": "eligible, announceable", "fits": "eligible",
	"former": "last-known-good, previous", "front": "node service proxy, frontend", "fronts": "frontends",
	"frontstay": "session affinity", "hand": "generation, version", "hearing": "heartbeat, failure detector",
	"held": "frozen, kept by a checkpoint", "hold": "freeze, checkpoint", "interned": "dictionary",
	"judgement": "diagnosis, verdict", "keeper": "controller, syncer, reconciler", "kept": "checkpoint, last-known-good",
	"lacking": "unsupported", "lane": "path", "late": "orphan, pending", "led": "routed, external",
	"letgo": "port reuse", "living": "established connections", "meaning": "barrier, resolve, translate",
	"missed": "route flush", "near": "cached read", "notice": "status reporter", "oracle": "reference data plane",
	"owe": "pending operations", "owes": "pending operations", "picture": "desired state", "pictures": "desired states",
	"plumb": "veth setup", "population": "label index", "portion": "chunk", "probing": "peer health check",
	"silent": "peer health check, no heartbeat", "sound": "valid", "spot": "shared VIP", "spots": "shared VIPs",
	"stamp": "generation, version", "standing": "conditions", "stranger": "unmanaged", "strangers": "unmanaged, external backends",
	"ticket": "join token", "told": "reported, host view", "trait": "feature", "untold": "unreported",
	"whose": "ownership", "wish": "desired write",
}

// phrases make sentences hard to read; comments use others.
var phrases = regexp.MustCompile(`(?i)\b(that of|those that|what of|of theirs|is told|are told|anew|whoever|nobody)\b`)

// nouns were invented for the desired state, the reference data plane and frontends. A path or
// file name may contain one.
var nouns = regexp.MustCompile(`(?i)(?:^|[^/\w-])(pictures?|oracles?|faces?)(?:$|[^/\w-])`)

const namesFile = "testdata/names.txt"

// Identifiers, packages, files, comments and messages, of Go and C, use the words of the field. The
// places that do not yet are counted in testdata/names.txt, by package and word, and may not become
// more; `go test ./internal/archtest -run TestNames -update-names` writes the lower counts.
func TestNamesAreWordsOfTheField(t *testing.T) {
	found := map[string]int{}      // "dir word" -> how many declarations and comments
	where := map[string][]string{} // the same -> examples
	count := func(dir, word, at string) {
		key := dir + " " + word
		found[key]++
		where[key] = append(where[key], at)
	}
	for _, f := range files(t) {
		if f.isC() {
			for id, at := range identifiersOfC(f) {
				for _, w := range words(id) {
					if replacements[w] != "" {
						count(path.Dir(f.name), w, fmt.Sprintf("%s:%d: %s", f.name, at, id))
					}
				}
			}
			for _, comment := range commentsOfC.FindAllString(f.text, -1) {
				for range phrases.FindAllString(comment, -1) {
					count(path.Dir(f.name), "(phrases)", f.name+": "+comment)
				}
				for range nouns.FindAllString(comment, -1) {
					count(path.Dir(f.name), "(nouns)", f.name+": "+comment)
				}
			}
		}
		if !f.isGo() || f.generated() || strings.Contains(f.name, "/testdata/") || strings.HasSuffix(f.name, "archtest/names_test.go") {
			continue
		}
		dir := path.Dir(f.name)
		for _, w := range words(strings.TrimSuffix(path.Base(f.name), ".go")) {
			if replacements[w] != "" {
				count(dir, w, f.name)
			}
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, f.name, f.text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range declared(parsed) {
			for _, w := range words(id.Name) {
				if replacements[w] != "" {
					count(dir, w, fmt.Sprintf("%s: %s", fset.Position(id.Pos()), id.Name))
				}
			}
		}
		for _, group := range parsed.Comments {
			for range phrases.FindAllString(group.Text(), -1) {
				count(dir, "(phrases)", fset.Position(group.Pos()).String())
			}
			for range nouns.FindAllString(group.Text(), -1) {
				count(dir, "(nouns)", fset.Position(group.Pos()).String())
			}
		}
		for _, m := range messages(parsed) {
			for range nouns.FindAllString(m.Value, -1) {
				count(dir, "(nouns)", fset.Position(m.Pos()).String())
			}
		}
	}
	if *updateNames {
		writeNames(t, found)
	}
	allowed := readNames(t)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if found[key] > allowed[key] {
			_, word, _ := strings.Cut(key, " ")
			hint := "write a plain sentence"
			if r := replacements[word]; r != "" {
				hint = "the field says: " + r
			} else if word == "(nouns)" {
				hint = "say desired state, reference data plane or frontend"
			}
			t.Errorf("%s occurs %d times, %d allowed (%s): %s", key, found[key], allowed[key], hint, strings.Join(where[key], ", "))
		}
	}
}

// messages returns the string literals that have several words.
func messages(f *ast.File) (out []*ast.BasicLit) {
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
			out = append(out, lit)
		}
		return true
	})
	return out
}

// commentsOfC finds comments, which strings of the C programs do not contain.
var commentsOfC = regexp.MustCompile(`//[^\n]*`)

// identifiersOfC returns the identifiers of a C file, and the line of each one's first use.
func identifiersOfC(f file) map[string]int {
	ids, n := map[string]int{}, 0
	for line := range strings.Lines(f.text) {
		n++
		for _, id := range regexp.MustCompile(`[A-Za-z_]\w*`).FindAllString(commentsOfC.ReplaceAllString(line, ""), -1) {
			if ids[id] == 0 {
				ids[id] = n
			}
		}
	}
	return ids
}

// words splits an identifier or file name into its words, in lower case.
func words(name string) []string {
	var out []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			out = append(out, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && i > 0 && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end()
		}
		word = append(word, r)
	}
	end()
	return out
}

// declared returns the package's name and the names of types, functions, methods, fields,
// package-level variables and constants of a file. Local variables are not checked.
func declared(f *ast.File) []*ast.Ident {
	ids := []*ast.Ident{f.Name}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			ids = append(ids, d.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					ids = append(ids, s.Names...)
				case *ast.TypeSpec:
					ids = append(ids, s.Name)
					ast.Inspect(s.Type, func(n ast.Node) bool {
						switch n := n.(type) {
						case *ast.FuncType:
							return false // parameters are local
						case *ast.Field:
							ids = append(ids, n.Names...)
						}
						return true
					})
				}
			}
		}
	}
	return ids
}

func readNames(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(namesFile)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var dir, word string
		var n int
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscan(line, &dir, &word, &n); err != nil {
			t.Fatalf("%s: %q: %v", namesFile, line, err)
		}
		allowed[dir+" "+word] = n
	}
	return allowed
}

func writeNames(t *testing.T, found map[string]int) {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Home-made words that are left: package, word, how many. See names_test.go.\n")
	for _, key := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "%s %d\n", key, found[key])
	}
	if err := os.WriteFile(filepath.FromSlash(namesFile), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
