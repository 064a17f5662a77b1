package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits of a type: an engineer has to hold it in the head.
const (
	maxMethods = 40
	maxFields  = 20
	maxGuarded = 8 // fields that one mutex guards
)

// size is what a type has.
type size struct{ Methods, Fields, Guarded int }

func (s size) String() string {
	return fmt.Sprintf("%d methods, %d fields, %d fields below one mutex", s.Methods, s.Fields, s.Guarded)
}

func (s size) beyond(o size) bool {
	return s.Methods > o.Methods || s.Fields > o.Fields || s.Guarded > o.Guarded
}

var limits = size{maxMethods, maxFields, maxGuarded}

// object is a type with what counts towards its size.
type object struct {
	methods   map[string]bool // its own, and functions whose first parameter is the type
	own       int             // methods alone
	embedded  []string        // types whose methods it has too
	fields    int
	guarded   int
	exempt    bool // fields are not counted: REST objects, flags, options
	generated bool
}

// flagStructs have a field for each option; so has a packet for each header field.
var flagStructs = regexp.MustCompile(`(?i)(flags|options|config|packet)$`)

// A type has at most 40 methods and 20 fields, and a mutex guards at most 8 fields.
// Functions of the package whose first parameter, a context apart, is a pointer to the type
// count as methods, and so do methods that come by embedding. Generated types, api.Client, the
// fields of REST objects, flag structs and plain rows without methods do not count.
func TestTypesAreSmall(t *testing.T) {
	objects := map[string]*object{}
	for _, f := range files(t) {
		if f.isGo() && !f.isTest() && !strings.Contains(f.name, "/testdata/") {
			countObjects(t, f, objects)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		o := objects[name]
		if o.generated || name == "api.Client" {
			continue
		}
		s := size{Methods: len(allMethods(name, objects)), Guarded: o.guarded}
		if !o.exempt && o.own > 0 {
			s.Fields = o.fields
		}
		if s.beyond(limits) {
			t.Errorf("%s is too large: %s; at most %s", name, s, limits)
		}
	}
}

// allMethods returns the methods of a type with those of what it embeds.
func allMethods(name string, objects map[string]*object) map[string]bool {
	all := map[string]bool{}
	o := objects[name]
	if o == nil {
		return all
	}
	maps.Copy(all, o.methods)
	for _, e := range o.embedded {
		if e != name {
			maps.Copy(all, allMethods(e, objects))
		}
	}
	return all
}

// countObjects adds the types, methods and functions of a file.
func countObjects(t *testing.T, f file, objects map[string]*object) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), f.name, f.text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	dir := path.Dir(f.name)
	get := func(name string) *object {
		key := dir + "." + name
		if objects[key] == nil {
			objects[key] = &object{methods: map[string]bool{}}
		}
		return objects[key]
	}
	imports := importedDirs(parsed)
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				name, _ := typeName(d.Recv.List[0].Type)
				o := get(name)
				o.methods[d.Name.Name] = true
				o.own++
			} else if name, pointer := firstParameter(d.Type.Params.List); pointer && !strings.Contains(name, ".") {
				get(name).methods["func "+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				o := get(ts.Name.Name)
				o.generated = f.generated()
				o.exempt = dir == "api" || flagStructs.MatchString(ts.Name.Name)
				o.countMembers(ts.Type, f.text, func(e ast.Expr) string {
					name, _ := typeName(e)
					if pkg, rest, found := strings.Cut(name, "."); found {
						return imports[pkg] + "." + rest
					}
					return dir + "." + name
				})
			}
		}
	}
}

// firstParameter returns the type of a function's first parameter, a context apart.
func firstParameter(params []*ast.Field) (name string, pointer bool) {
	for _, p := range params {
		if name, pointer = typeName(p.Type); name != "context.Context" {
			return name, pointer
		}
	}
	return "", false
}

// countMembers counts fields, embedded types, and the fields that follow a mutex up to an
// empty line or the next mutex: that is what it guards.
func (o *object) countMembers(e ast.Expr, text string, qualified func(ast.Expr) string) {
	switch e := e.(type) {
	case *ast.InterfaceType:
		for _, m := range e.Methods.List {
			for _, n := range m.Names {
				o.methods[n.Name] = true
			}
			if len(m.Names) == 0 {
				o.embedded = append(o.embedded, qualified(m.Type))
			}
		}
	case *ast.StructType:
		guarded, below, end := 0, false, e.Pos()
		for _, m := range e.Fields.List {
			begin := m.Pos()
			if m.Doc != nil {
				begin = m.Doc.Pos()
			}
			if strings.Count(text[end-1:begin-1], "\n") > 1 {
				below = false
			}
			end = m.End()
			if m.Comment != nil {
				end = m.Comment.End()
			}
			name, _ := typeName(m.Type)
			if name == "sync.Mutex" || name == "sync.RWMutex" {
				guarded, below = 0, true
				continue
			}
			n := max(len(m.Names), 1)
			if o.fields += n; below {
				guarded += n
				o.guarded = max(o.guarded, guarded)
			}
			if len(m.Names) == 0 {
				o.embedded = append(o.embedded, qualified(m.Type))
			}
		}
	}
}

// typeName returns the name of a type, without type parameters, and whether it is a pointer.
func typeName(e ast.Expr) (name string, pointer bool) {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name, false
	case *ast.StarExpr:
		name, _ := typeName(e.X)
		return name, true
	case *ast.SelectorExpr:
		name, _ := typeName(e.X)
		return name + "." + e.Sel.Name, false
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.ParenExpr:
		return typeName(e.X)
	}
	return "", false
}

// importedDirs maps names of a file's imports to directories of the module.
func importedDirs(f *ast.File) map[string]string {
	dirs := map[string]string{}
	for _, i := range f.Imports {
		dir := strings.TrimPrefix(strings.Trim(i.Path.Value, `"`), module)
		name := path.Base(dir)
		if i.Name != nil {
			name = i.Name.Name
		}
		dirs[name] = dir
	}
	return dirs
}
