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
)

const (
	theMap      = "docs/design/README.md"
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
func TestKnownFaults(t *testing.T) {
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
func TestMap(t *testing.T) {
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

// The picture of the rooms is true: what an arrow leads to is imported by where
// it begins, or right below that.
func TestMapPicture(t *testing.T) {
	_, picture, _ := strings.Cut(text(t, theMap), "```mermaid")
	picture, _, _ = strings.Cut(picture, "```")
	rooms := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+)\["([\w/]+)"\]`).FindAllStringSubmatch(picture, -1) {
		rooms[m[1]] = m[2]
	}
	pkgs := packages(t)
	arrows := regexp.MustCompile(`(?m)^ *(\w+) (?:--> |-- "[^"]*" --> )(\w+)$`).FindAllStringSubmatch(picture, -1)
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
			t.Errorf("%s does not import %s: the picture in %s has an arrow", from, to, theMap)
		}
	}
}

// Every page of the design and every decision is on the map, and links between
// pages lead somewhere.
func TestPages(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	all := files(t)
	exists := map[string]bool{}
	for _, f := range all {
		for name := f.name; name != "."; name = path.Dir(name) {
			exists[name] = true
		}
	}
	page := text(t, theMap)
	for _, f := range all {
		if !strings.HasSuffix(f.name, ".md") {
			continue
		}
		dir := path.Dir(f.name)
		if (dir == "docs/design" || dir == "docs/adr") && f.name != theMap && !strings.Contains(page, path.Base(f.name)+")") {
			t.Errorf("%s is not on the map, %s", f.name, theMap)
		}
		for _, m := range link.FindAllStringSubmatch(f.text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if target := path.Join(dir, m[1]); !exists[target] {
				t.Errorf("%s links to %s, which does not exist", f.name, target)
			}
		}
	}
}
