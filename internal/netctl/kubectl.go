package netctl

import (
	"cmp"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// KubectlPlugin is the name of netctl as a plugin of kubectl: 'kubectl contiv'.
const KubectlPlugin = "kubectl-contiv"

// defaultNamespace is the namespace that kubectl uses now, if netctl is its plugin; empty = Kubernetes'
// default.
func defaultNamespace(env Env) string {
	if env.Program != KubectlPlugin {
		return ""
	}
	files := filepath.SplitList(env.Getenv("KUBECONFIG"))
	if len(files) == 0 {
		files = []string{filepath.Join(env.Getenv("HOME"), ".kube", "config")}
	}
	return kubectlNamespace(files)
}

// kubectlNamespace reads the namespace of the current context from kubeconfig files, of which the
// first that has a value counts, as for kubectl.
func kubectlNamespace(files []string) string {
	current := ""
	namespaces := map[string]string{} // by context
	for _, file := range files {
		var config struct {
			Current  string `yaml:"current-context"`
			Contexts []struct {
				Name    string
				Context struct{ Namespace string }
			}
		}
		data, err := os.ReadFile(file)
		if err != nil || yaml.Unmarshal(data, &config) != nil { // kubectl complains of it
			continue
		}
		current = cmp.Or(current, config.Current)
		for _, c := range config.Contexts {
			if _, has := namespaces[c.Name]; !has {
				namespaces[c.Name] = c.Context.Namespace
			}
		}
	}
	return namespaces[current]
}
