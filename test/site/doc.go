// Package site opens every page of the site of the documentation in a browser. It guarantees
// that links and anchors lead somewhere, that nothing comes from other servers, and that
// pages can be read on a telephone and by a screen reader. It must not be imported. It is
// called by make test-docs. Start with TestEveryPageCanBeRead.
package site
