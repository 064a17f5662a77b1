// Package condition is the registry of everything that can be wrong with a cluster: each
// condition is one variable with its name, severity, object, meaning and remedy. It
// guarantees that a condition outside this registry cannot be reported, and that names stay;
// docs/reference/conditions.md is generated from it. A new condition needs a variable here, a line
// in testdata/names.txt, and code that checks it. It must not check anything itself. It is
// called by netmaster, netplugin's observer and netctl. Start with Condition.
package condition
