package pagetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// Block is a fenced code block of a page.
type Block struct {
	Page     string // relative to the module, with slashes
	Line     int    // of its fence
	Language string
	Mark     string // what the comment in the line above says; "" = there is none
	Text     string // without the indentation of its fence
}

var (
	fenceRE = regexp.MustCompile("^([ >]*)(```+)(\\S*)$")
	markRE  = regexp.MustCompile(`^ *<!-- (.*) -->$`)
)

// Blocks returns the code blocks of README.md and of the pages below docs, page by page.
func Blocks(t testing.TB) (all []Block) {
	t.Helper()
	module := root(t)
	pages := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(module, "docs"), func(file string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(file, ".md") {
			name, relErr := filepath.Rel(module, file)
			pages = append(pages, filepath.ToSlash(name))
			return relErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(module, filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, blocksOf(page, string(text))...)
	}
	return all
}

// blocksOf returns the code blocks of a page's text.
func blocksOf(page, text string) (all []Block) {
	before, indent, end := "", "", "" // end is of the block that the line is in
	for i, line := range strings.Split(text, "\n") {
		fence := fenceRE.FindStringSubmatch(line)
		switch {
		case end != "" && strings.TrimLeft(line, " >") == end:
			end = ""
		case end != "":
			all[len(all)-1].Text += strings.TrimPrefix(line, indent) + "\n"
		case fence != nil:
			b := Block{Page: page, Line: i + 1, Language: fence[3]}
			if m := markRE.FindStringSubmatch(before); m != nil {
				b.Mark = m[1]
			}
			all = append(all, b)
			indent, end = fence[1], fence[2]
		}
		before = line
	}
	return all
}

// Command is a command line of a block of shell commands.
type Command struct {
	Block
	Args []string // after the program
}

// Commands returns the command lines of a program in the pages' blocks of shell commands, also
// where they follow the "--" of another program. Pages write "..." for further arguments.
func Commands(t testing.TB, program string) (all []Command) {
	t.Helper()
	for _, b := range Blocks(t) {
		if b.Language != "sh" {
			continue
		}
		for _, words := range commandLines(b.Text) {
			for i, w := range words {
				if filepath.Base(w) == program && (i == 0 || words[i-1] == "--") {
					all = append(all, Command{b, slices.DeleteFunc(slices.Clone(words[i+1:]), func(w string) bool { return w == "..." })})
				}
			}
		}
	}
	if len(all) == 0 {
		t.Errorf("no page has a command line of %s", program)
	}
	return all
}

// hereRE finds the end of a here document's text.
var hereRE = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)

// beforeCommand are words that a command follows.
var beforeCommand = []string{"!", "do", "then", "else", "if", "while", "{", "sudo", "exec", "time", "alias"}

// commandLines splits a script into the words of its commands. It knows as much of the shell
// as pages use: quotes, comments, here documents, redirections and what stands between commands.
func commandLines(script string) (all [][]string) {
	var words []string
	end := func() {
		for len(words) > 0 && (slices.Contains(beforeCommand, words[0]) || assignRE.MatchString(words[0])) {
			words = words[1:]
		}
		if len(words) > 3 && words[0] == "ip" && words[1] == "netns" && words[2] == "exec" {
			words = words[4:]
		}
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	here := ""
	for line := range strings.Lines(strings.ReplaceAll(script, "\\\n", " ")) {
		if here != "" {
			if strings.TrimSpace(line) == here {
				here = ""
			}
			continue
		}
		if m := hereRE.FindStringSubmatch(line); m != nil && !strings.Contains(line, "<<<") {
			here = m[1]
		}
		for _, w := range tokenRE.FindAllString(line, -1) {
			switch {
			case w[0] == '#':
			case separatorRE.MatchString(w):
				end()
			case redirectRE.MatchString(w):
			default:
				words = append(words, quoteRE.ReplaceAllString(w, ""))
			}
		}
		end()
	}
	return all
}

var (
	assignRE    = regexp.MustCompile(`^\w+=`)
	separatorRE = regexp.MustCompile(`^([;|&()]|[<>]\()+$`)
	redirectRE  = regexp.MustCompile(`^\d*[<>]`)
	quoteRE     = regexp.MustCompile(`["']`)
	// tokenRE finds comments, separators, redirections with where they lead, and words.
	tokenRE = regexp.MustCompile(`#.*|[<>]\(|\d*(?:<<<|<<-?|>>|[<>])\s*&?\s*(?:"[^"]*"|'[^']*'|[^\s;|&()<>])*|[;|&()]+|(?:"[^"]*"|'[^']*'|\$\{[^}]*\}|[^\s;|&()<>"'])+`)
)

var placeholderRE = regexp.MustCompile(`\$\{?\w+\}?|\bADDRESS\b`)

// CheckProgram reads each command line of a program on a page, and each file after
// <!-- config: PROGRAM -->, as the program does; set makes its flags.
func CheckProgram(t testing.TB, program string, set func() *flags.Set) {
	t.Helper()
	none := func(string) string { return "" }
	for _, c := range Commands(t, program) {
		for i, arg := range c.Args {
			c.Args[i] = placeholderRE.ReplaceAllString(arg, "10.0.0.9")
		}
		if err := set().ParseAll(c.Args, none); err != nil {
			t.Errorf("%s:%d: %s %s: %v", c.Page, c.Line, program, strings.Join(c.Args, " "), err)
		}
	}
	for _, b := range Blocks(t) {
		if b.Mark != "config: "+program {
			continue
		}
		file := filepath.Join(t.TempDir(), program+".yaml")
		err := os.WriteFile(file, []byte(b.Text), 0o600)
		if s := set(); err == nil {
			if err = s.ParseAll([]string{"--config", file}, none); err == nil {
				err = s.FromFile()
			}
		}
		if err != nil {
			t.Errorf("%s:%d: %v", b.Page, b.Line, err)
		}
	}
}
