package flags

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	configFlag = "config"
	noConfig   = "none"
)

// Config adds --config, which names a file that sets flags too; path is the default, and
// the file there may be missing.
func (s *Set) Config(path string) {
	s.file = path
	s.String(&s.file, configFlag, "file", "YAML file whose keys are names of flags; none = no file")
}

// FromFile takes from the file of --config the flags that neither the command line nor the
// environment sets. Keys are the names of today of flags that have a variable.
func (s *Set) FromFile() error {
	given := s.Given(configFlag)
	if s.file == noConfig {
		return nil
	}
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) && given == "" {
		return nil
	}
	if err != nil {
		return Usagef("read the file of --config: %w", err)
	}
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(data))
	switch err := documents.Decode(&doc); {
	case errors.Is(err, io.EOF): // comments only
		return nil
	case err != nil:
		return Usagef("%s: %w", s.file, err)
	}
	if err := documents.Decode(&more); err == nil {
		return Usagef("%s:%d: a second YAML document begins here; write all settings into one", s.file, more.Line)
	} else if !errors.Is(err, io.EOF) {
		return Usagef("%s: after the first YAML document: %w", s.file, err)
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return Usagef("%s: must have lines such as log-level: debug", s.file)
	}
	seen := make(map[string]bool)
	for i := 0; i < len(top.Content); i += 2 {
		key, line := top.Content[i].Value, top.Content[i].Line
		f := s.Lookup(key)
		switch {
		case f == nil || f.Names[0] != key || f.Env == "" || key == configFlag:
			return Usagef("%s:%d: unknown key %q%s", s.file, line, key, s.meant(key))
		case seen[key]:
			return Usagef("%s:%d: key %q is there twice", s.file, line, key)
		}
		seen[key] = true
		value, ok := oneValue(top.Content[i+1])
		if !ok {
			return Usagef("%s:%d: key %q must have a value, or a list of values", s.file, line, key)
		}
		if f.Given != "" {
			continue
		}
		if err := f.assign(key+" in "+s.file, value); err != nil {
			return err
		}
	}
	return nil
}

// meant ends the refusal of a key with the one that it may be.
func (s *Set) meant(key string) string {
	if f := s.Lookup(key); f != nil {
		switch {
		case f.Names[0] == configFlag:
			return ": a file names no other file"
		case f.Env == "":
			return ": only the command line sets it"
		}
		return "; its name is " + f.Names[0]
	}
	var known []string
	for _, f := range s.Flags {
		known = append(known, f.Names[0])
	}
	if near := Nearest(key, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return s.seeHelp()
}

// oneValue returns what a flag would have on the command line: a list's items with commas.
func oneValue(n *yaml.Node) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode:
		return n.Value, n.Tag != "!!null"
	case n.Kind != yaml.SequenceNode:
		return "", false
	}
	var items []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return "", false
		}
		items = append(items, item.Value)
	}
	return strings.Join(items, ","), true
}
