//! Checks of the keys for the messages that are learned.

use batchweave_daemon::config::Problem;

use super::{ChatConfig, ProducerConfig};
use crate::transform::chat::Learn;

impl ProducerConfig {
    /// Adds the contradictions of `chat.learn`, `chat.loss_keys` and `chat.ignore`.
    pub(super) fn check_learned(&self, problems: &mut Vec<Problem>) {
        let chat = &self.chat;
        let default = ChatConfig::default();
        for (key, given) in [
            ("chat.learn", chat.learn != default.learn),
            ("chat.loss_keys", !chat.loss_keys.is_empty()),
            ("chat.ignore", !chat.ignore.is_empty()),
        ] {
            if given && !self.packing.mode.has_template() {
                let message = "is for packing.mode = \"chat\" and \"pairs\" only";
                problems.push(Problem::new(key, message));
            }
        }
        if let Learn::Roles(roles) = &chat.learn {
            if roles.is_empty() {
                let message =
                    "must name a role at least, as [\"assistant\"], or be \"all\" or \"last\"";
                problems.push(Problem::new("chat.learn", message));
            }
            let mapped = roles.iter().find_map(|role| {
                let other = chat.roles.get(role).filter(|other| *other != role)?;
                Some((role, other))
            });
            problems.extend(mapped.map(|(role, other)| {
                let message = format!(
                    "names {role:?}, which chat.roles maps to {other:?}; write {other:?}, as the template does"
                );
                Problem::new("chat.learn", message)
            }));
        }
        let twice = chat.loss_keys.iter().find(|key| chat.ignore.contains(key));
        problems.extend(twice.map(|key| {
            let message = format!("names {key:?}, which is in chat.ignore too; leave one out");
            Problem::new("chat.loss_keys", message)
        }));
        let text = [&chat.role_key, &chat.content_key];
        let text = chat.loss_keys.iter().find(|key| text.contains(key));
        problems.extend(text.map(|key| {
            let message = format!("names {key:?}, which is the role or the text; name another key");
            Problem::new("chat.loss_keys", message)
        }));
    }
}
