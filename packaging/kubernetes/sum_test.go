package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestChartHasTheVersion: the chart is of the version in VERSION.
func TestChartHasTheVersion(t *testing.T) {
	version, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	chart, err := os.ReadFile("chart/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"version", "appVersion"} {
		if line := "\n" + key + ": " + string(version); !strings.Contains(string(chart), line) {
			t.Errorf("chart/Chart.yaml lacks %q: go generate ./packaging/kubernetes", line)
		}
	}
}

// TestManifestsAreOfTheChart: the manifests were made of the chart as it is. What they hold is compared
// by the module render, which takes Helm to build.
func TestManifestsAreOfTheChart(t *testing.T) {
	var names []string
	err := filepath.WalkDir("chart", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s\n%s", strings.TrimPrefix(filepath.ToSlash(name), "chart/"), text)
	}
	want := "# chart: " + hex.EncodeToString(sum.Sum(nil)) + "\n"
	for _, name := range []string{"contiv.yaml", "uninstall.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("packaging/kubernetes/%s was made of another chart: go generate ./packaging/kubernetes", name)
		}
	}
	// The rights are those of a file that stands for itself too.
	rights, err := os.ReadFile("netmaster-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("contiv.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(rights), "---\n") {
		if !strings.Contains(string(all), strings.TrimSpace(doc)) {
			t.Errorf("contiv.yaml lacks of netmaster-rbac.yaml\n%s", doc)
		}
	}
}
