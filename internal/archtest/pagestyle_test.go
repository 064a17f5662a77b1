package archtest

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

const (
	maxSentence  = 40 // words
	maxMean      = 16 // words, of the sentences of a page that has at least minSentences
	minSentences = 5
	maxCell      = 200
	maxReadme    = 1000 // words, those of code blocks too
	maxRelease   = 150  // lines of a release in the changelog
)

var (
	fenceRE    = regexp.MustCompile("(?ms)^[ >]*```.*?^[ >]*```[ \t]*$")
	htmlRE     = regexp.MustCompile(`(?s)<!--.*?-->`)
	linkRE     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	codeRE     = regexp.MustCompile("`[^`]*`")
	bulletRE   = regexp.MustCompile(`^([-*+]|\d+\.|>) +`)
	sentenceRE = regexp.MustCompile(`[.!?]["')*]*\s+`)
	purposeRE  = regexp.MustCompile(`^(On|After) (this page|these pages) you `)
)

// Pages of users have short sentences and cells, and say first what the reader can do.
func TestSentencesAndCellsOfPagesAreShort(t *testing.T) {
	for _, f := range files(t) {
		if isUserPage(f.name) {
			for rule, example := range badStyle(f) {
				t.Errorf("%s: %s: %s", f.name, rule, example)
			}
		}
	}
}

// isUserPage reports whether people who use Contiv read the page.
func isUserPage(name string) bool {
	if !strings.HasSuffix(name, ".md") {
		return false
	}
	switch path.Dir(name) {
	case "docs/tutorials", "docs/how-to", "docs/concepts", "docs/reference":
		return true
	}
	return name == "README.md" || name == index
}

// badStyle returns an example for each rule that a page does not keep.
func badStyle(f file) map[string]string {
	bad := map[string]string{}
	sentences, cells := prose(f.text)
	words := 0
	for _, s := range sentences {
		n := countWords(s)
		words += n
		if n > maxSentence {
			bad["long sentence"] = fmt.Sprintf("%d words: %s", n, s)
		}
	}
	if n := len(sentences); n >= minSentences && words > maxMean*n {
		bad["mean"] = fmt.Sprintf("%.1f words a sentence", float64(words)/float64(n))
	}
	for _, c := range cells {
		if n := len([]rune(c)); n > maxCell {
			bad["cell"] = fmt.Sprintf("%d characters: %s", n, c)
		}
	}
	if f.name != "README.md" && (len(sentences) == 0 || !purposeRE.MatchString(sentences[0])) {
		bad["first sentence"] = `it begins with "On this page you ..." and says what the reader can do`
	}
	return bad
}

// prose returns the sentences of paragraphs and lists of a page, and the cells of its tables,
// as they are shown: links by their text.
func prose(text string) (sentences, cells []string) {
	text = htmlRE.ReplaceAllString(fenceRE.ReplaceAllString(text, ""), "")
	var paragraph []string
	end := func() {
		shown := linkRE.ReplaceAllString(strings.Join(paragraph, " "), "$1")
		paragraph = nil
		// The dots of code end no sentence.
		shown = codeRE.ReplaceAllStringFunc(shown, func(s string) string { return strings.NewReplacer(". ", "_ ", "? ", "_ ", "! ", "_ ").Replace(s) })
		for len(shown) > 0 {
			sentence, rest := shown, ""
			if at := sentenceRE.FindStringIndex(shown); at != nil {
				sentence, rest = shown[:at[1]], shown[at[1]:]
			}
			if shown = rest; countWords(sentence) > 0 {
				sentences = append(sentences, strings.TrimSpace(sentence))
			}
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		bullet := bulletRE.FindString(line)
		if line == "" || line[0] == '#' || line[0] == '|' || bullet != "" {
			end()
		}
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '|':
			for c := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, "/"), "|") {
				cells = append(cells, strings.TrimSpace(linkRE.ReplaceAllString(c, "$1")))
			}
		default:
			paragraph = append(paragraph, strings.TrimPrefix(line, bullet))
		}
	}
	end()
	return sentences, cells
}

// countWords returns how many words a sentence has; code is one word.
func countWords(sentence string) int {
	n := 0
	for w := range strings.FieldsSeq(codeRE.ReplaceAllString(sentence, "code")) {
		if strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

// The checks of style see what they are for.
func TestStyleChecksFindBadStyle(t *testing.T) {
	many := strings.Repeat("word ", maxSentence) + "more."
	for text, rule := range map[string]string{
		"On this page you read.\n\n" + many + " A. B. C. D.":                                                           "long sentence",
		"On this page you read `a. b`.\n- " + strings.Repeat(strings.Repeat("word ", maxMean+2)+"end. ", minSentences): "mean",
		"On this page you read.\n\n| a | " + strings.Repeat("x", maxCell+1) + " |\n":                                   "cell",
		"This page says much.": "first sentence",
	} {
		if bad := badStyle(file{"docs/how-to/" + "x.md", text}); len(bad) != 1 || bad[rule] == "" {
			t.Errorf("%q breaks %v, want %s alone", text, bad, rule)
		}
	}
	good := "<!-- " + many + " -->\n# Title\n\nOn this page you [read](" + strings.Repeat("x", 300) + ").\n\n```sh\n" + many + "\n```\n\n| a | [b](" + strings.Repeat("x", 300) + ") |\n"
	if bad := badStyle(file{"docs/how-to/" + "x.md", good}); len(bad) > 0 {
		t.Errorf("a good page breaks %v", bad)
	}
}

// The README is read at one sitting, and a release's part of the changelog too.
func TestPagesReadAtOneSittingAreShort(t *testing.T) {
	if n := len(strings.Fields(text(t, "README.md"))); n > maxReadme {
		t.Errorf("README.md has %d words, %d are allowed", n, maxReadme)
	}
	for release := range strings.SplitSeq(text(t, "CHANGELOG.md"), "\n## ") {
		if n := strings.Count(release, "\n"); n > maxRelease {
			t.Errorf("CHANGELOG.md: %d lines of %.20q, %d are allowed", n, release, maxRelease)
		}
		for line := range strings.Lines(release) {
			if n := countWords(line); n > maxSentence {
				t.Errorf("CHANGELOG.md: %d words in one line, %d are allowed: %s", n, maxSentence, line)
			}
		}
	}
}
