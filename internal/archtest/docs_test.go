package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const (
	index       = "docs/README.md"
	theMap      = "docs/design/README.md"
	reference   = "docs/reference/README.md"
	knownFaults = "docs/design/known-faults.md"
)

// text returns a tracked file.
func text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(moduleRoot(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every "known fault N" in the repository is one of the list.
func TestKnownFaultNumbersAreListed(t *testing.T) {
	listed := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(text(t, knownFaults), -1) {
		n, _ := strconv.Atoi(m[1]) // it is of digits
		if listed[n] {
			t.Errorf("%s lists %d twice", knownFaults, n)
		}
		listed[n] = true
	}
	citation := regexp.MustCompile(`(?i)known[ -]faults?[*\])]*(?:\([^)]*\))?\s+(\d+(?:(?:, | and | to )\d+)*)`)
	cited := 0
	for _, f := range files(t) {
		for _, m := range citation.FindAllStringSubmatch(strings.ReplaceAll(f.text, "\n// ", " "), -1) {
			for _, digits := range regexp.MustCompile(`\d+`).FindAllString(m[1], -1) {
				cited++
				if n, _ := strconv.Atoi(digits); !listed[n] { // it is of digits
					t.Errorf("%s cites known fault %s, which %s does not list", f.name, digits, knownFaults)
				}
			}
		}
	}
	if cited < 50 {
		t.Errorf("only %d citations found: do they read otherwise now?", cited)
	}
}

// The map names what there is, and every package has its page.
func TestMapNamesWhatThereIs(t *testing.T) {
	root := moduleRoot(t)
	page := text(t, theMap)
	for _, m := range regexp.MustCompile("[`\"]((?:api|bench|cmd|docs|examples|internal|packaging|test|tools)(?:/[^`\"]*)?)[`\"]").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(m[1], "/*"))); err != nil {
			t.Errorf("%s names %s, which does not exist", theMap, m[1])
		}
	}
	_, table, _ := strings.Cut(page, "## From path to page")
	table, _, _ = strings.Cut(table, "\n## ")
	var exact, below []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`(?: \\([^)]*\\))?( and below)?").FindAllStringSubmatch(cells[1], -1) {
			exact = append(exact, m[1])
			if m[2] != "" || !strings.Contains(m[1], "/") {
				below = append(below, strings.TrimSuffix(m[1], "/*")+"/")
			}
		}
	}
	for pkg := range packages(t) {
		onMap := slices.Contains(exact, pkg) || slices.ContainsFunc(below, func(dir string) bool { return strings.HasPrefix(pkg, dir) })
		if !onMap && !testOnly(pkg) {
			t.Errorf("%s has no row in %s", pkg, theMap)
		}
	}
}

// The diagram of the rooms is true: what an arrow leads to is imported by where
// it begins, or right below that.
func TestMapDiagramIsTrue(t *testing.T) {
	_, diagram, _ := strings.Cut(text(t, theMap), "```mermaid")
	diagram, _, _ = strings.Cut(diagram, "```")
	rooms := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+)\["([\w/]+)"\]`).FindAllStringSubmatch(diagram, -1) {
		rooms[m[1]] = m[2]
	}
	pkgs := packages(t)
	arrows := regexp.MustCompile(`(?m)^ *(\w+) (?:--> |-- "[^"]*" --> )(\w+)$`).FindAllStringSubmatch(diagram, -1)
	if len(arrows) < 20 {
		t.Fatalf("only %d arrows found", len(arrows))
	}
	for _, m := range arrows {
		from, to := rooms[m[1]], rooms[m[2]]
		if from == "" || to == "" {
			t.Errorf("%s: an arrow between rooms that are not drawn", strings.TrimSpace(m[0]))
			continue
		}
		imported := false
		for pkg, p := range pkgs {
			if pkg == from || strings.HasPrefix(pkg, from+"/") {
				imported = imported || slices.Contains(p.Imports, module+to)
			}
		}
		if !imported {
			t.Errorf("%s does not import %s: the diagram in %s has an arrow", from, to, theMap)
		}
	}
}

// Every page below docs is on the index, every page of the design on the map too, and
// every page of the reference on the reference's own index. Pages of the reference are
// generated, or compared with the code by a test, except those in byHand.
func TestPagesAreOnTheirIndex(t *testing.T) {
	byHand := []string{reference, "docs/reference/compatibility.md", "docs/reference/egress.md", "docs/reference/restrictions.md"}
	for _, f := range files(t) {
		dir := path.Dir(f.name)
		if !strings.HasSuffix(f.name, ".md") || dir != "docs" && !strings.HasPrefix(dir, "docs/") || f.name == index {
			continue
		}
		for page, holds := range map[string]bool{index: true, theMap: dir == "docs/design" && f.name != theMap, reference: dir == "docs/reference" && f.name != reference} {
			link, err := filepath.Rel(path.Dir(page), f.name)
			if err != nil {
				t.Fatal(err)
			}
			if holds && !strings.Contains(text(t, page), "("+link+")") {
				t.Errorf("%s is not on %s, with one phrase about it", f.name, page)
			}
		}
		if dir == "docs/reference" && !slices.Contains(byHand, f.name) && !strings.HasPrefix(f.text, "<!-- Generated by `go test ") && !strings.HasPrefix(f.text, "<!-- Checked by `go test ") {
			t.Errorf("%s does not say in its first line what generates or checks it", f.name)
		}
	}
}

var (
	targetRE  = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	mentionRE = regexp.MustCompile(`\b(docs/(?:adr|concepts|design|how-to|reference|tutorials)/[\w.-]+\.md)(?:#([\w-]+))?`)
	headingRE = regexp.MustCompile(`(?m)^#{1,6} +(.*?)[ #]*$`)
	namedRE   = regexp.MustCompile(`<a (?:name|id)="([^"]+)"`)
)

// Links lead to files and headings that there are, and so do the names of pages in messages,
// comments and other files.
func TestLinksLeadSomewhere(t *testing.T) {
	exists, anchors := map[string]bool{}, map[string]map[string]bool{}
	all := files(t)
	for _, f := range all {
		for name := f.name; name != "."; name = path.Dir(name) {
			exists[name] = true
		}
		if strings.HasSuffix(f.name, ".md") {
			anchors[f.name] = anchorsOf(f.text)
		}
	}
	leads := func(from, to, anchor string) {
		t.Helper()
		if !exists[to] {
			t.Errorf("%s names %s, which does not exist", from, to)
		} else if anchor != "" && anchors[to] != nil && !anchors[to][anchor] {
			t.Errorf("%s names %s#%s, and that page has no such heading", from, to, anchor)
		}
	}
	for _, f := range all {
		if !strings.HasSuffix(f.name, ".md") {
			for _, m := range mentionRE.FindAllStringSubmatch(f.text, -1) {
				leads(f.name, m[1], m[2])
			}
			continue
		}
		for _, m := range targetRE.FindAllStringSubmatch(codeRE.ReplaceAllString(fenceRE.ReplaceAllString(f.text, ""), ""), -1) {
			switch {
			case strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:"):
			case m[1] == "":
				leads(f.name, f.name, m[2])
			default:
				leads(f.name, path.Join(path.Dir(f.name), m[1]), m[2])
			}
		}
	}
}

// anchorsOf returns what links may name on a page: its headings, as GitHub writes them, and
// named places.
func anchorsOf(page string) map[string]bool {
	page = fenceRE.ReplaceAllString(page, "")
	all, times := map[string]bool{}, map[string]int{}
	for _, m := range headingRE.FindAllStringSubmatch(page, -1) {
		heading := strings.Map(func(r rune) rune {
			if r == ' ' {
				return '-'
			}
			if r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
				return unicode.ToLower(r)
			}
			return -1
		}, linkRE.ReplaceAllString(m[1], "$1"))
		if n := times[heading]; n > 0 {
			all[heading+"-"+strconv.Itoa(n)] = true
		}
		times[heading]++
		all[heading] = true
	}
	for _, m := range namedRE.FindAllStringSubmatch(page, -1) {
		all[m[1]] = true
	}
	return all
}

// The page of compatibility names the versions that tests are built with.
func TestCompatibilityListsTheTestedVersions(t *testing.T) {
	page := text(t, "docs/reference/compatibility.md")
	for module, of := range map[string]string{
		"go.etcd.io/etcd/server/v3": "go.mod", "github.com/hashicorp/consul": "tools/consul/go.mod",
		"github.com/docker/compose/v2": "tools/compose/go.mod", "k8s.io/kubernetes": "test/kube/kubernetes/go.mod",
		"gopkg.in/k8snetworkplumbingwg/multus-cni.v4": "tools/multus/go.mod",
	} {
		m := regexp.MustCompile(`\s` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(text(t, of))
		if m == nil {
			t.Errorf("%s requires no %s", of, module)
		} else if !strings.Contains(page, " "+m[1]) {
			t.Errorf("tests run with %s %s, which docs/reference/compatibility.md does not name", module, m[1])
		}
	}
}
