// Package pagetest writes the generated pages of docs/reference and compares them with the
// code. It guarantees that each page names the command that renews it in its first line.
// It must not know what a page is about. It is called by the tests that generate a page.
// Start with Page.
package pagetest
