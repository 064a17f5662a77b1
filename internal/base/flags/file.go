package flags

import (
	"bytes"
	"errors"
	"fmt"
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
		if err := f.fromYAML(fmt.Sprintf("%s in %s:%d", key, s.file, line), top.Content[i+1]); err != nil {
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

// fromYAML sets the flag, unless it is set, to what it would have on the command line: a
// list's items with commas.
func (f *Flag) fromYAML(how string, n *yaml.Node) error {
	list := true
	switch f.To.(type) {
	case *bool, *int:
		list = false
	}
	value := n.Value
	if n.Kind == yaml.SequenceNode && list {
		items := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return Usagef("%s: each item must be one value", how)
			}
			items = append(items, item.Value)
		}
		value = strings.Join(items, ",")
	} else if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		if list {
			return Usagef("%s: must have a value, or a list of values", how)
		}
		return Usagef("%s: must have one value", how)
	}
	if f.Given != "" {
		return nil
	}
	return f.assign(how, value)
}
