// Package condition is the registry of conditions: everything that can be wrong with a
// cluster and that hosts, netmasters, netctl status, netctl doctor, metrics and alerts
// report.
//
// Each condition is one variable of this package, with its name, severity, object, meaning
// and remedy. Only these variables make findings and parts of a daemon's health, so that a
// condition which is not in the registry cannot be reported. docs/user/conditions.md is
// generated from it. A new condition needs its variable here, and the code that checks it.
package condition
