// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package credfile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Secrets specifies the forms in which a file may contain secrets.
type Secrets int

const (
	// Text allows plain text.
	Text Secrets = iota
	// TextOrBcrypt allows plain text and bcrypt hashes.
	TextOrBcrypt
)

// The errors about the form of a secret. They contain no part of the secret.
var (
	errCommented = errors.New("the record looks like a comment, but the server would accept its secret: " +
		"remove the record, or put the secret in quotes")
	errHtpasswd = errors.New("contains a user name and a hash: write only the hash, " +
		"and the user name in the second field")
	errLocked      = errors.New("is the mark of a locked password: remove the record")
	errPlaceholder = errors.New("is a placeholder or an encrypted value: write the secret itself")
	errEncoding    = errors.New("is not valid UTF-8: save the file as UTF-8")
	errScheme      = errors.New("begins with the name of an authentication scheme: write only the secret")
	errBcrypt      = errors.New("begins with $2 but is not a valid bcrypt hash")
)

// The patterns of text that is probably not a plain-text secret.
var (
	// modular matches the Modular Crypt Format and PHC strings, as in crypt(3) and htpasswd.
	modular = regexp.MustCompile(`^\$([A-Za-z0-9][A-Za-z0-9_.-]*)(?:\$|,rounds=)`)
	// braced matches a storage scheme of LDAP (RFC 2307), Dovecot or Spring.
	braced = regexp.MustCompile(`^\{([A-Za-z][A-Za-z0-9_./+-]*)\}.`)
	// named matches a hash with the name of its algorithm as prefix, as in Django, Werkzeug and
	// PostgreSQL.
	named = regexp.MustCompile(`(?i)^((?:pbkdf2|scrypt|scram|argon2|bcrypt|crypt|sha|md5)[a-z0-9_:-]*)\$.*\$.`)
	// sums matches hashes as MySQL and PostgreSQL store them.
	sums = regexp.MustCompile(`^(?:\*[0-9A-F]{40}|md5[0-9a-f]{32})$`)
	// bcryptHash matches the bcrypt hashes that this project can verify.
	bcryptHash = regexp.MustCompile(`^\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}$`)

	locked      = regexp.MustCompile(`^[!*]+(?:LK|NP)?[!*]*$`)
	placeholder = regexp.MustCompile(`(?s)^(?:\$\{.*\}|\$\(.*\)|\{\{.*\}\}|<.*>|ENC\[.*\]|\$ANSIBLE_VAULT;.*)$`)
	scheme      = regexp.MustCompile(`(?i)^(?:bearer|basic|digest)\s`)
)

// hashBytes is the minimum size at which a text that has the form of a hash, but no known format
// name, is treated as a hash. A shorter text may be a password such as $ecret$.
const hashBytes = 24

// hashNames returns the names of the known hash formats. Errors contain no other text from a
// secret, because the text might be part of a password.
func hashNames() []string {
	return []string{
		"1", "2", "2a", "2b", "2x", "2y", "3", "5", "6", "7", "8", "9", "gy", "y", "md5", "sha1", "apr1", "P", "H", "S",
		"argon2", "argon2d", "argon2i", "argon2id", "scrypt", "pbkdf2", "pbkdf2-sha1", "pbkdf2-sha256", "pbkdf2-sha512",
		"bcrypt-sha256", "NT",
		"sha", "ssha", "sha224", "sha256", "sha384", "sha512", "ssha224", "ssha256", "ssha384", "ssha512", "smd5", "crypt",
		"bcrypt", "blf-crypt", "md5-crypt", "sha256-crypt", "sha512-crypt", "des-crypt", "ntlm", "lanman", "cleartext",
		"plain", "noop", "sasl", "kerberos", "sha-1", "sha-256", "sha-512", "pbkdf2_sha1", "pbkdf2_sha256", "scram-sha-256",
		"bcrypt_sha256",
	}
}

// CheckSecret returns an error if an unquoted secret has a form that is rejected. The error
// contains no part of the secret.
func CheckSecret(secret string, as Secrets) error { return checkSecret(secret, false, as) }

// checkSecret returns an error if the text is probably not meant as a plain-text secret. Without
// this check, a client could use the text of an unsupported hash as the secret. A record that
// looks like a comment would be valid.
func checkSecret(secret string, quoted bool, as Secrets) error {
	text := strings.TrimSpace(secret)
	unlocked := strings.TrimLeft(text, "!*")
	switch {
	case !utf8.ValidString(secret):
		return errEncoding
	case !quoted && (strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";")):
		return errCommented
	case locked.MatchString(text):
		return errLocked
	case placeholder.MatchString(text):
		return errPlaceholder
	case scheme.MatchString(text):
		return errScheme
	case as == TextOrBcrypt && bcryptHash.MatchString(secret):
		return nil
	case as == TextOrBcrypt && isBcrypt(text):
		return errBcrypt
	}
	for _, form := range []string{text, unlocked} {
		if name, ok := hashOf(form); ok {
			return unsupported(name, as)
		}
	}
	if _, rest, found := strings.Cut(text, ":"); found {
		if _, ok := hashOf(strings.TrimLeft(rest, "!*")); ok {
			return errHtpasswd
		}
	}
	return nil
}

// isBcrypt reports whether a text begins like a supported bcrypt hash. It also returns true if the
// text begins with "$2" but does not have the form of a hash.
func isBcrypt(text string) bool {
	name, ok := hashOf(text)
	return ok && slices.Contains([]string{"$2a$", "$2b$", "$2y$"}, name) || !ok && strings.HasPrefix(text, "$2")
}

// hashOf reports whether a text has the form of a hash. It also returns the name of the format if
// it is known.
func hashOf(text string) (name string, ok bool) {
	ok = sums.MatchString(text)
	for _, form := range []struct {
		*regexp.Regexp
		before, after string
	}{{modular, "$", "$"}, {braced, "{", "}"}, {named, "", ""}} {
		m := form.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		id, _, _ := strings.Cut(m[1], ":")
		if slices.ContainsFunc(hashNames(), func(known string) bool { return strings.EqualFold(known, id) }) {
			return form.before + id + form.after, true
		}
		ok = ok || len(text) >= hashBytes
	}
	return "", ok
}

// unsupported returns an error about an unsupported hash, with the name of its format if it is
// known.
func unsupported(name string, as Secrets) error {
	instead := "write a bcrypt hash (htpasswd -nB) or the password itself"
	if as == Text {
		instead = "write the token itself"
	}
	if name == "" {
		return errors.New("has the form of a hash that is not supported: " + instead)
	}
	return fmt.Errorf("is a hash of the format %s, which is not supported: %s", name, instead)
}
