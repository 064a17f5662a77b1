package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

// placeholder stands in the manifest for the one address that each cluster has its own of.
const placeholder = "CONTROL_PLANE_ADDRESS"

// kubeVersion is the Kubernetes that manifests are made for, as Helm's own default is an old one.
var kubeVersion = chartutil.KubeVersion{Version: "v1.35.0", Major: "1", Minor: "35"}

// manifests are the files that are made of the chart, with the values that they are made with.
var manifests = map[string]map[string]any{
	"contiv.yaml":    {"controlPlane": map[string]any{"address": placeholder}},
	"uninstall.yaml": {"uninstall": map[string]any{"enabled": true}},
}

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// run writes the manifests of the chart in dir beside it.
func run(dir string) error {
	for name, values := range manifests {
		text, err := manifest(filepath.Join(dir, "chart"), values)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manifest is what `kubectl apply` takes, headed by the sum of what it was made of.
func manifest(chart string, values map[string]any) ([]byte, error) {
	sum, err := sumOf(chart)
	if err != nil {
		return nil, err
	}
	rendered, err := render(chart, values)
	if err != nil {
		return nil, err
	}
	_, sorted, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made of packaging/kubernetes/chart by go generate ./packaging/kubernetes: change the chart.\n# chart: %s\n", sum)
	for _, m := range sorted {
		fmt.Fprintf(&b, "---\n%s\n", bytes.TrimSpace([]byte(m.Content)))
	}
	return b.Bytes(), nil
}

// render is `helm template`: file by file of the chart.
func render(dir string, values map[string]any) (map[string]string, error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = kubeVersion
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "contiv", Namespace: "kube-system", Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// sumOf is the SHA-256 of the chart's files, by name, as sum_test.go of the main module
// makes it too.
func sumOf(dir string) (string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	sort.Strings(names)
	sum := sha256.New()
	for _, name := range names {
		f, err := os.Open(name) // of a link, what it leads to
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(dir, name)
		if err == nil {
			fmt.Fprintf(sum, "%s\n", filepath.ToSlash(rel))
			_, err = io.Copy(sum, f)
		}
		if err := f.Close(); err != nil {
			return "", err
		}
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
